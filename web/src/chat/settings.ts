// What a person can set for the answers, kept in localStorage. A number that is not set is '' and is not sent.
import type { ChatRequest } from '../api/chat';

export interface NumberField {
  name: 'temperature' | 'top_p' | 'top_k' | 'min_p' | 'repetition_penalty' | 'max_tokens' | 'seed';
  label: string;
  hint: string;
  min: number;
  max: number;
  step: number;
}

// A new control is one line here, and its name in ChatRequest. The limits are those of docs/server.md.
export const kNumberFields: NumberField[] = [
  { name: 'temperature', label: 'Temperature', hint: '0 always takes the likeliest token', min: 0, max: 2, step: 0.1 },
  {
    name: 'top_p',
    label: 'Top p',
    hint: 'the likeliest tokens that together have this probability',
    min: 0,
    max: 1,
    step: 0.05,
  },
  { name: 'top_k', label: 'Top k', hint: 'so many of the likeliest tokens; 0: all', min: 0, max: 1_000_000, step: 1 },
  {
    name: 'min_p',
    label: 'Min p',
    hint: 'tokens with this share of the likeliest one’s probability',
    min: 0,
    max: 1,
    step: 0.01,
  },
  { name: 'repetition_penalty', label: 'Repetition penalty', hint: '1: none', min: 0.1, max: 10, step: 0.05 },
  {
    name: 'max_tokens',
    label: 'Max tokens',
    hint: 'the longest answer; empty: to the end of the context',
    min: 1,
    max: 10_000_000,
    step: 1,
  },
  {
    name: 'seed',
    label: 'Seed',
    hint: 'the same seed gives the same answer',
    min: 0,
    max: Number.MAX_SAFE_INTEGER,
    step: 1,
  },
];

export interface Settings {
  system: string;
  probabilities: boolean;
  numbers: Partial<Record<NumberField['name'], number>>;
}

export const kDefaults: Settings = { system: '', probabilities: false, numbers: {} };

const kStorageName = 'hone.settings';
const kTopTokens = 5;

// What is typed into a field: undefined where it is empty, a text that says what is wrong, or the number.
export function readNumber(field: NumberField, typed: string): number | undefined | string {
  if (typed.trim() === '') return undefined;
  const value = Number(typed);
  if (!Number.isFinite(value)) return 'not a number';
  if (Number.isInteger(field.step) && !Number.isInteger(value)) return 'a whole number, please';
  if (value < field.min || value > field.max) return `from ${field.min} to ${field.max}`;
  return value;
}

export function loadSettings(): Settings {
  try {
    const stored = JSON.parse(localStorage.getItem(kStorageName) ?? '{}') as Partial<Settings>;
    const numbers: Settings['numbers'] = {};
    for (const field of kNumberFields) {
      const value = readNumber(field, String(stored.numbers?.[field.name] ?? ''));
      if (typeof value === 'number') numbers[field.name] = value;
    }
    return {
      system: typeof stored.system === 'string' ? stored.system : '',
      probabilities: stored.probabilities === true,
      numbers,
    };
  } catch {
    return kDefaults;
  }
}

export function saveSettings(settings: Settings) {
  try {
    localStorage.setItem(kStorageName, JSON.stringify(settings));
  } catch {
    /* they hold until the page is closed */
  }
}

export function requestFields({ numbers, probabilities }: Settings): Partial<ChatRequest> {
  return { ...numbers, ...(probabilities ? { logprobs: true, top_logprobs: kTopTokens } : {}) };
}

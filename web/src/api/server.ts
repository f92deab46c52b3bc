// The server's own facts: which models, and whether it takes requests.
import { getJson } from './http';

// GET /v1/models. Beyond OpenAI's fields, what hone adds is shown as far as it is there.
export interface Model {
  id: string;
  created?: number;
  root?: string;
  parent?: string | null;
  max_model_len?: number;
  [field: string]: unknown;
}

export const models = async (): Promise<Model[]> => (await getJson<{ data?: Model[] }>('v1/models')).data ?? [];

// GET /health works without a key and says only that somebody is there.
export async function alive(): Promise<boolean> {
  try {
    return (await fetch('health', { cache: 'no-store' })).ok;
  } catch {
    return false;
  }
}

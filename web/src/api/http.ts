// Requests to the server that sent this page, with the API key if there is one. Nothing here names another host.
import { ApiError, errorOfResponse, isAbort, noAnswer } from './error';

const kKeyName = 'hone.key';
let key = sessionStorage.getItem(kKeyName) ?? localStorage.getItem(kKeyName) ?? '';
let onUnauthorized: () => void = () => {};

export const hasKey = () => key !== '';

// `keep`: also for later visits; otherwise until this tab is closed. '' forgets it.
export function setKey(value: string, keep: boolean) {
  key = value.trim();
  sessionStorage.removeItem(kKeyName);
  localStorage.removeItem(kKeyName);
  if (key) (keep ? localStorage : sessionStorage).setItem(kKeyName, key);
}

// Called whenever the server wants a key, or another one.
export function whenUnauthorized(callback: () => void) {
  onUnauthorized = callback;
}

// Throws ApiError for every status but 2xx; an abort by `signal` passes through as AbortError.
export async function call(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (key) headers.set('Authorization', `Bearer ${key}`);
  let response: Response;
  try {
    response = await fetch(path, { ...init, headers, cache: 'no-store', credentials: 'omit', redirect: 'error' });
  } catch (error) {
    throw isAbort(error) ? error : noAnswer();
  }
  if (response.ok) return response;
  const error = await errorOfResponse(response);
  if (error.status === 401) onUnauthorized();
  throw error;
}

export const postJson = (path: string, body: unknown, signal: AbortSignal): Promise<Response> =>
  call(path, { method: 'POST', signal, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });

export async function getJson<T>(path: string): Promise<T> {
  const response = await call(path);
  try {
    return (await response.json()) as T;
  } catch {
    throw new ApiError('refused', `${path}: the answer is not JSON.`, response.status);
  }
}

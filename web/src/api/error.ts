// What can go wrong between the page and the server, as one type that a person can be shown.

export type ErrorKind =
  | 'refused' // the server answered with an error status, or with an error inside a stream
  | 'lost'; // no answer, or an answer that broke off

export class ApiError extends Error {
  constructor(
    readonly kind: ErrorKind,
    message: string,
    readonly status = 0,
    readonly code = '',
    readonly retryAfterSeconds = 0,
  ) {
    super(message);
    this.name = 'ApiError';
  }
}

interface ErrorBody {
  error?: { message?: unknown; code?: unknown; param?: unknown };
}

function fromBody(body: unknown, status: number, retryAfterSeconds: number): ApiError | null {
  const error = (body as ErrorBody | null)?.error;
  if (typeof error?.message !== 'string') return null;
  return new ApiError(
    'refused',
    error.message,
    status,
    typeof error.code === 'string' ? error.code : '',
    retryAfterSeconds,
  );
}

// An answer whose status is not 2xx. A proxy in between may answer with something that is not JSON.
export async function errorOfResponse(response: Response): Promise<ApiError> {
  const retryAfter = Number(response.headers.get('Retry-After'));
  const seconds = Number.isFinite(retryAfter) && retryAfter > 0 ? retryAfter : 0;
  const text = await response.text().catch(() => '');
  let body: unknown = null;
  try {
    body = JSON.parse(text);
  } catch {
    /* told below */
  }
  return (
    fromBody(body, response.status, seconds) ??
    new ApiError('refused', `The server answered with status ${response.status}.`, response.status, '', seconds)
  );
}

// An `{"error": ...}` event of a stream whose status was 200.
export const errorOfEvent = (event: unknown): ApiError | null => fromBody(event, 0, 0);

export const noAnswer = () => new ApiError('lost', 'The server does not answer. Is it still running?');
export const brokenOff = () => new ApiError('lost', 'The connection was lost before the answer was complete.');

export const isAbort = (error: unknown): boolean => error instanceof DOMException && error.name === 'AbortError';

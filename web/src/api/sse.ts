// Server-sent events, from bytes to the text of their `data` lines. Follows the format of the HTML standard: lines end
// with \n, \r\n or \r, wherever the chunks were cut; comments (": ping") and other fields are passed over.

// Feed() takes text as it comes and returns the data of the events that it completed.
export class EventParser {
  private rest = '';
  private data: string[] = [];

  feed(text: string): string[] {
    const events: string[] = [];
    this.rest += text;
    for (;;) {
      const end = this.rest.search(/[\r\n]/);
      // A '\r' at the very end may be the first half of "\r\n".
      if (end < 0 || (this.rest[end] === '\r' && end + 1 === this.rest.length)) return events;
      const line = this.rest.slice(0, end);
      this.rest = this.rest.slice(end + (this.rest.startsWith('\r\n', end) ? 2 : 1));
      this.line(line, events);
    }
  }

  private line(line: string, events: string[]) {
    if (line === '') {
      if (this.data.length > 0) events.push(this.data.join('\n'));
      this.data = [];
    } else if (line === 'data') {
      this.data.push('');
    } else if (line.startsWith('data:')) {
      this.data.push(line.slice(line[5] === ' ' ? 6 : 5));
    }
  }
}

// The data of the events of a response. The server sends a comment at least every 10 s, so a silence of `silentMs`
// means that nobody is there any more: `silent()` is called, and should abort the request.
export async function* eventsOf(response: Response, silentMs: number, silent: () => void): AsyncGenerator<string> {
  if (!response.body) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parser = new EventParser();
  let timer = setTimeout(silent, silentMs);
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(silent, silentMs);
      yield* parser.feed(decoder.decode(value, { stream: true }));
    }
  } finally {
    clearTimeout(timer);
    reader.cancel().catch(() => {}); // it may have failed already
  }
}

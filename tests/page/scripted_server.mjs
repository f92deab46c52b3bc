// A server that says what a test wants, in hone's formats: for what a real model does not say on demand (markup that
// attacks, errors, probabilities, a connection that breaks). The page and its policy header are the real ones.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

const read = path => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const html = read('assets/page/index.html');
// The header as src/serve/endpoints/page.cc has it: its string literals, joined.
const policy = [
  .../"Content-Security-Policy",\s*((?:"[^"]*"\s*)+)/
    .exec(read('src/serve/endpoints/page.cc'))[1]
    .matchAll(/"([^"]*)"/g),
]
  .map(match => match[1])
  .join('');

const chunk = (delta, more = {}) => ({
  id: 'chatcmpl-1',
  object: 'chat.completion.chunk',
  created: 1,
  model: 'scripted',
  choices: [{ index: 0, delta, logprobs: null, finish_reason: null, ...more }],
});

const token = ([text, p, ...others]) => {
  const one = (t, q) => ({ token: t, logprob: Math.log(q), bytes: [...Buffer.from(t)] });
  return {
    ...one(text, p),
    top_logprobs: [[text, p], ...others].map(([t, q]) => one(t, q)).sort((a, b) => b.logprob - a.logprob),
  };
};

// What a scenario may do with the answer to a chat request.
class Answer {
  constructor(request, response) {
    this.request = request;
    this.response = response;
    this.gone = new Promise(resolve => response.once('close', resolve));
  }
  begin() {
    this.response.writeHead(200, { 'Content-Type': 'text/event-stream; charset=utf-8' });
    this.event(chunk({ role: 'assistant', content: '' }));
  }
  event(object) {
    this.response.write(`data: ${typeof object === 'string' ? object : JSON.stringify(object)}\n\n`);
  }
  say(content) {
    this.event(chunk({ content }));
  }
  think(text) {
    this.event(chunk({ reasoning_content: text }));
  }
  // [text, probability, ...[other text, its probability]]
  sayTokens(...tokens) {
    for (const t of tokens) this.event(chunk({ content: t[0] }, { logprobs: { content: [token(t)], refusal: null } }));
  }
  end(reason = 'stop') {
    this.event(chunk({}, { finish_reason: reason, seed: 42 }));
    this.event({
      ...chunk({}),
      choices: [],
      usage: { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12, prompt_tokens_details: { cached_tokens: 3 } },
    });
    this.event('[DONE]');
    this.response.end();
  }
  whole(...texts) {
    this.begin();
    for (const text of texts) this.say(text);
    this.end();
  }
  refuse(status, code, message, headers = {}) {
    this.response.writeHead(status, { 'Content-Type': 'application/json', ...headers });
    this.response.end(JSON.stringify({ error: { message, type: 'error', param: null, code } }));
  }
  breakOff() {
    this.response.destroy();
  }
}

// `scenario(answer, body)` answers a chat request. `key`: what the server wants as a key. `metrics()`: the text of
// /metrics.
export async function startScripted({
  scenario = answer => answer.whole('Hello.'),
  key = '',
  metrics = null,
  models = [{ id: 'scripted' }],
} = {}) {
  const requests = [];
  const server = createServer((request, response) => {
    const path = request.url.split('?')[0];
    const json = (status, body) => {
      response.writeHead(status, { 'Content-Type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    if (path === '/') {
      response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8', 'Content-Security-Policy': policy });
      return response.end(html);
    }
    if (path === '/health') return json(200, { status: 'ok' });
    if (key && request.headers.authorization !== `Bearer ${key}`) {
      return json(401, {
        error: { message: 'the API key is not known', type: 'error', param: null, code: 'invalid_api_key' },
      });
    }
    if (path === '/v1/models') return json(200, { object: 'list', data: models });
    if (path === '/ready')
      return json(200, { status: 'ready', running: 1, waiting: 2, kv_blocks: 64, kv_blocks_used: 16, preemptions: 0 });
    if (path === '/metrics' && metrics) {
      response.writeHead(200, { 'Content-Type': 'text/plain' });
      return response.end(metrics());
    }
    if (path !== '/v1/chat/completions') return json(404, { error: { message: 'no such path', code: 'not_found' } });
    let text = '';
    request
      .setEncoding('utf8')
      .on('data', piece => {
        text += piece;
      })
      .on('end', () => {
        const body = JSON.parse(text);
        requests.push(body);
        scenario(new Answer(request, response), body, requests.length);
      });
  });
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve));
  const port = server.address().port;
  return {
    url: `http://127.0.0.1:${port}/`,
    requests, // the bodies of chat requests
    async stop() {
      server.closeAllConnections();
      await new Promise(resolve => server.close(resolve));
    },
    async startAgain() {
      await new Promise(resolve => server.listen(port, '127.0.0.1', resolve));
    },
  };
}

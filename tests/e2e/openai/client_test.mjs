// The official OpenAI client against `hone serve builtin`: whole answers, streams, aborts, errors, the other endpoints.
// Run by ./dev test where node and npm are there: node --test client_test.mjs, with HONE_PROGRAM naming the program.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';

const folder = mkdtempSync(join(tmpdir(), 'hone-'));
const log = join(folder, 'access.log');
let server, exited, origin, client;

before(async () => {
  const keys = join(folder, 'keys');
  writeFileSync(keys, 'alice: alice-key-1\nslow: slow-key-1 rate=1/h\n');
  server = spawn(process.env.HONE_PROGRAM, ['serve', 'builtin', '--port', '0', '--api-keys', keys, '--admin-key', 'admin-key-1',
    '--access-log', log, '--vllm-metrics', '--threads', '2'], { stdio: ['ignore', 'inherit', 'pipe'] });
  exited = new Promise((resolve) => server.on('exit', (code, signal) => resolve(code ?? signal)));
  origin = await new Promise((resolve, reject) => {
    let text = '';
    server.stderr.on('data', (data) => {
      text += data;
      const found = text.match(/http:\/\/[0-9.]+:[0-9]+/);
      if (found) resolve(found[0]);
    });
    exited.then((code) => reject(new Error(`hone ended with ${code}: ${text}`)));
  });
  client = new OpenAI({ baseURL: `${origin}/v1`, apiKey: 'alice-key-1', maxRetries: 0 });
});
after(() => server.kill('SIGKILL'));

const ask = (content, more = {}) => ({ model: 'builtin', messages: [{ role: 'user', content }], temperature: 0, max_tokens: 24, ...more });

test('a whole answer, and the same as a stream', async () => {
  const { data: whole, request_id } = await client.chat.completions.create(ask('Hello')).withResponse();
  assert.ok(request_id);
  const { content } = whole.choices[0].message;
  assert.ok(content.length > 0);
  assert.ok(['stop', 'length'].includes(whole.choices[0].finish_reason));
  const stream = await client.chat.completions.create(ask('Hello', { stream: true, stream_options: { include_usage: true } }));
  let text = '', role, finish, usage;
  for await (const chunk of stream) {
    role ??= chunk.choices[0]?.delta.role;
    text += chunk.choices[0]?.delta.content ?? '';
    finish ??= chunk.choices[0]?.finish_reason;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, content);
  assert.equal(role, 'assistant');
  assert.equal(finish, whole.choices[0].finish_reason);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test("the client's own accumulator agrees", async () => {
  const runner = client.chat.completions.stream(ask('Count', { n: 2, seed: 5, temperature: 1 }));
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices.length, 2);
  for (const choice of final.choices) assert.equal(typeof choice.message.content, 'string');
});

test('log-probabilities and stop strings', async () => {
  const whole = await client.chat.completions.create(ask('Hello', { logprobs: true, top_logprobs: 3, max_tokens: 4 }));
  assert.ok(whole.choices[0].logprobs.content.length > 0);
  for (const token of whole.choices[0].logprobs.content) assert.equal(token.top_logprobs.length, 3);
  const legacy = await client.completions.create({ model: 'builtin', prompt: 'One two', max_tokens: 3, logprobs: 2, temperature: 0, echo: true });
  assert.ok(legacy.choices[0].text.startsWith('One two'));
  assert.equal(legacy.choices[0].logprobs.tokens.length, legacy.choices[0].logprobs.token_logprobs.length);
  assert.equal(legacy.choices[0].logprobs.token_logprobs[0], null);
});

const weather = { type: 'object', properties: { city: { type: 'string', maxLength: 12 }, days: { type: 'integer', minimum: 1, maximum: 9 } },
  required: ['city', 'days'], additionalProperties: false };
const tool = { type: 'function', function: { name: 'weather', strict: true, parameters: weather } };
const check = (value) => {
  assert.deepEqual(Object.keys(value), ['city', 'days']);
  assert.ok(value.city.length <= 12 && value.days >= 1 && value.days <= 9 && Number.isInteger(value.days), JSON.stringify(value));
};

test('answers by a schema, parsed by the client', async () => {
  const format = { type: 'json_schema', json_schema: { name: 'weather', strict: true, schema: weather } };
  for (let seed = 0; seed < 3; ++seed) {
    const request = ask('The weather in Rome?', { temperature: 1.5, seed, n: 2, max_tokens: 200, response_format: format });
    const { choices } = await client.chat.completions.parse(request);
    for (const { message, finish_reason } of choices) assert.equal(finish_reason, 'stop'), check(message.parsed);
    const streamed = await client.chat.completions.stream(request).finalChatCompletion();
    for (const { message } of streamed.choices) check(JSON.parse(message.content));
  }
  const { output_text } = await client.responses.create({ model: 'builtin', input: 'Rome', text: { format: { type: 'json_schema', name: 'w', schema: weather } } });
  check(JSON.parse(output_text));
  const any = await client.chat.completions.create(ask('JSON, please', { max_tokens: 400, response_format: { type: 'json_object' } }));
  if (any.choices[0].finish_reason === 'stop') assert.equal(typeof JSON.parse(any.choices[0].message.content), 'object');
});

test('calls that must be made', async () => {
  for (const tool_choice of ['required', { type: 'function', function: { name: 'weather' } }]) {
    const request = ask('Hello', { temperature: 1.5, seed: 4, max_tokens: 200, tools: [tool], tool_choice, parallel_tool_calls: false });
    const { choices } = await client.chat.completions.create(request);
    assert.equal(choices[0].finish_reason, 'tool_calls');
    assert.equal(choices[0].message.tool_calls.length, 1);
    assert.equal(choices[0].message.tool_calls[0].function.name, 'weather');
    check(JSON.parse(choices[0].message.tool_calls[0].function.arguments));
    const streamed = await client.chat.completions.stream(request).finalChatCompletion();
    check(JSON.parse(streamed.choices[0].message.tool_calls[0].function.arguments));
  }
  const response = await client.responses.create({ model: 'builtin', input: 'Hello', tools: [{ type: 'function', name: 'weather', strict: true, parameters: weather }],
    tool_choice: 'required', parallel_tool_calls: false });
  check(JSON.parse(response.output.find((item) => item.type === 'function_call').arguments));
});

test('what the parsing helpers return can be sent back', async () => {
  const user = { role: 'user', content: 'Hello' }, more = { role: 'user', content: 'More' };
  const format = { type: 'json_schema', json_schema: { name: 'weather', schema: weather, strict: true } };
  const parsed = (await client.chat.completions.parse({ model: 'builtin', messages: [user], response_format: format })).choices[0].message;
  check(parsed.parsed);
  await client.chat.completions.create({ model: 'builtin', messages: [user, parsed, more], max_tokens: 1 });
  const called = (await client.chat.completions.parse({ model: 'builtin', messages: [user], tools: [tool], tool_choice: 'required' })).choices[0].message;
  check(called.tool_calls[0].function.parsed_arguments);
  const answers = called.tool_calls.map((call) => ({ role: 'tool', tool_call_id: call.id, content: 'fine' }));
  await client.chat.completions.create({ model: 'builtin', messages: [user, called, ...answers], max_tokens: 1 });
  const flat = { type: 'function', name: 'weather', strict: true, parameters: weather };
  for (const asked of [{ tools: [flat], tool_choice: 'required' }, { text: { format: { type: 'json_object' } } }]) {
    const { output } = await client.responses.parse({ model: 'builtin', input: [user], temperature: 0, max_output_tokens: 300, ...asked });
    const outputs = output.filter((item) => item.type === 'function_call').map((item) => ({ type: 'function_call_output', call_id: item.call_id, output: 'fine' }));
    await client.responses.create({ model: 'builtin', input: [user, ...output, ...outputs, more], max_output_tokens: 1 });
  }
});

test('a schema that cannot be enforced is refused, by its place', async () => {
  const bad = { type: 'object', properties: { a: { not: {} } } };
  await assert.rejects(client.chat.completions.create(ask('x', { response_format: { type: 'json_schema', json_schema: { name: 's', schema: bad } } })),
    (e) => e.status === 400 && e.param === 'response_format.json_schema.schema' && /properties.a.not/.test(e.message));
  await assert.rejects(client.chat.completions.create(ask('x', { tools: [{ type: 'function', function: { name: 'f', strict: true, parameters: bad } }] })),
    (e) => e.status === 400 && e.param === 'tools[0].function.parameters');
});

test('errors are the right classes, and say what is wrong', async () => {
  await assert.rejects(client.chat.completions.create(ask('x', { temperature: 9 })),
    (e) => e instanceof OpenAI.BadRequestError && e.param === 'temperature' && /found 9/.test(e.message));
  await assert.rejects(client.chat.completions.create(ask('x', { temprature: 1 })), (e) => e.status === 400 && /did you mean temperature/.test(e.message));
  await assert.rejects(client.chat.completions.create(ask('x', { model: 'gpt-4' })), (e) => e instanceof OpenAI.NotFoundError && e.code === 'model_not_found');
  await assert.rejects(client.chat.completions.create(ask('word '.repeat(40000))), (e) => e.status === 400 && e.code === 'context_length_exceeded');
  const stranger = new OpenAI({ baseURL: `${origin}/v1`, apiKey: 'nobody-knows', maxRetries: 0 });
  await assert.rejects(stranger.models.list(), (e) => e instanceof OpenAI.AuthenticationError);
  const slow = new OpenAI({ baseURL: `${origin}/v1`, apiKey: 'slow-key-1', maxRetries: 0 });
  await slow.chat.completions.create(ask('x', { max_tokens: 1 }));
  await assert.rejects(slow.chat.completions.create(ask('x')), (e) => e instanceof OpenAI.RateLimitError && Number(e.headers.get('retry-after')) > 1000);
});

const metrics = async () => (await fetch(`${origin}/metrics`, { headers: { authorization: 'Bearer alice-key-1' } })).text();
const running = async () => Number((await metrics()).match(/^hone_sequences_running\{[^}]*\} (\d+)/m)[1]);

test('an aborted stream ends its sequence', async () => {
  const stream = await client.chat.completions.create(ask('Go on', { stream: true, max_tokens: 2000, ignore_eos: true }));
  let chunks = 0;
  for await (const chunk of stream) {
    void chunk;
    if (++chunks === 3) break;  // the client aborts the request
  }
  for (let i = 0; i < 4000 && (await running()) > 0; ++i) await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(await running(), 0);
  const abort = new AbortController();
  const whole = client.chat.completions.create(ask('Go on', { max_tokens: 2000, ignore_eos: true }), { signal: abort.signal });
  setTimeout(() => abort.abort(), 200);
  await assert.rejects(whole, OpenAI.APIUserAbortError);
  for (let i = 0; i < 4000 && (await running()) > 0; ++i) await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(await running(), 0);
});

test('models', async () => {
  const list = await client.models.list();
  assert.deepEqual(list.data.map((model) => model.id), ['builtin']);
  assert.equal((await client.models.retrieve('builtin')).id, 'builtin');
  await assert.rejects(client.models.retrieve('other'), OpenAI.NotFoundError);
});

test('responses, whole and streamed', async () => {
  const request = { model: 'builtin', input: 'Hello', temperature: 0, max_output_tokens: 16 };
  const whole = await client.responses.create(request);
  assert.ok(whole.output_text.length > 0);
  const stream = await client.responses.create({ ...request, stream: true });
  let text = '', last;
  for await (const event of stream) {
    if (event.type === 'response.output_text.delta') text += event.delta;
    last = event;
  }
  assert.equal(text, whole.output_text);
  assert.ok(['response.completed', 'response.incomplete'].includes(last.type));
  assert.equal(last.response.usage.output_tokens, whole.usage.output_tokens);
  const final = await client.responses.stream(request).finalResponse();
  assert.equal(final.output.at(-1).content[0].text, whole.output_text);
  await assert.rejects(client.responses.create({ ...request, previous_response_id: 'resp_1' }), (e) => e.param === 'previous_response_id');
});

test('embeddings', async () => {
  const numbers = await client.embeddings.create({ model: 'builtin', input: ['one', 'two'], encoding_format: 'float' });
  assert.equal(numbers.data.length, 2);
  const packed = await client.embeddings.create({ model: 'builtin', input: ['one', 'two'] });  // base64, decoded by the client
  assert.equal(packed.data[1].embedding.length, numbers.data[1].embedding.length);
  for (let i = 0; i < numbers.data[1].embedding.length; ++i) {
    assert.ok(Math.abs(packed.data[1].embedding[i] - numbers.data[1].embedding[i]) < 1e-6);
  }
  const length = Math.hypot(...numbers.data[0].embedding);
  assert.ok(Math.abs(length - 1) < 1e-3, `length ${length}`);
});

test('other weights take over while a stream goes on', async () => {
  const admin = async (path = '', body) => {
    const headers = { authorization: 'Bearer admin-key-1', 'content-type': 'application/json' };
    const response = await fetch(`${origin}/admin/models${path}`, body ? { method: 'POST', headers, body: JSON.stringify(body) } : { headers });
    assert.ok(response.ok, await response.clone().text());
    return response.json();
  };
  const until = async (wanted) => {
    for (let i = 0; i < 600; ++i) {
      const state = await admin();
      if (wanted(state)) return;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    assert.fail('it did not come about');
  };
  const before = await client.chat.completions.create(ask('Hello'));
  await admin('', { model: 'builtin-draft', share: 1 });
  await until((state) => state.canary.phase === 'running');
  const fresh = await client.chat.completions.create(ask('Hello'));
  assert.notEqual(fresh.system_fingerprint, before.system_fingerprint);
  await admin('/share', { share: 0 });
  const stream = await client.chat.completions.create(ask('Go on', { stream: true, max_tokens: 60, ignore_eos: true }));
  let chunks = 0, fingerprint, finish;
  for await (const chunk of stream) {
    if (++chunks === 2) await admin('/promote', {});
    fingerprint ??= chunk.system_fingerprint;
    assert.equal(chunk.system_fingerprint, fingerprint);
    finish = chunk.choices[0]?.finish_reason ?? finish;
  }
  assert.equal(fingerprint, before.system_fingerprint);
  assert.equal(finish, 'length');
  assert.equal((await client.chat.completions.create(ask('Hello'))).system_fingerprint, fresh.system_fingerprint);
  await until((state) => state.models.length === 1);
});

test('drain: what is at work ends, new work is refused, the exit code is 0', async () => {
  const stream = await client.chat.completions.create(ask('Go on', { stream: true, max_tokens: 40, ignore_eos: true }));
  let chunks = 0, finish;
  for await (const chunk of stream) {
    if (++chunks === 2) server.kill('SIGTERM');
    finish = chunk.choices[0]?.finish_reason ?? finish;
  }
  assert.equal(finish, 'length');
  assert.equal(await exited, 0);
  const lines = readFileSync(log, 'utf8').trim().split('\n').map((line) => JSON.parse(line));
  assert.ok(lines.some((line) => line.tenant === 'alice' && line.completion_tokens === 40));
});

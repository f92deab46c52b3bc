// What the page computes without a browser: event streams, metrics, conversations, answers.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openModules } from './modules.mjs';

let modules, sse, prometheus, conversation, answers, settings, time;

before(async () => {
  modules = await openModules();
  [sse, prometheus, conversation, answers, settings, time] = await Promise.all(
    [
      'api/sse.ts',
      'api/prometheus.ts',
      'chat/conversation.ts',
      'chat/answer_stream.ts',
      'chat/settings.ts',
      'live/time_chart.tsx',
    ].map(file => modules.load(`/src/${file}`)),
  );
});
after(() => modules.close());

test('an event stream gives the same events however it is cut, with every kind of line end', () => {
  const text = ': ping\r\n\r\ndata: {"a":1}\n\nevent: x\ndata:two\rdata: lines\r\rid: 3\n\ndata\n\ndata:  spaced\n\n';
  const wanted = ['{"a":1}', 'two\nlines', '', ' spaced'];
  for (let size = 1; size <= text.length; ++size) {
    const parser = new sse.EventParser();
    const events = [];
    for (let i = 0; i < text.length; i += size) events.push(...parser.feed(text.slice(i, i + size)));
    assert.deepEqual(events, wanted, `pieces of ${size}`);
  }
});

test('an event that has not ended is not given', () => {
  assert.deepEqual(new sse.EventParser().feed('data: half\n'), []);
});

const kMetrics = `# HELP a_total Things.
# TYPE a_total counter
a_total{model_name="x \\"y\\" {z}\\n",weights="1"} 3
a_total{weights="2"} 4.5
plain 1e3 1700000000
not a metric line at all
h_bucket{w="1",le="0.1"} 1
h_bucket{w="1",le="0.5"} 3
h_bucket{w="1",le="+Inf"} 4
h_bucket{w="2",le="0.1"} 0
h_bucket{w="2",le="0.5"} 4
h_bucket{w="2",le="+Inf"} 4
h_sum{w="1"} 2
h_sum{w="2"} 1
`;

test('metrics: labels, escapes and sums over series', () => {
  const samples = prometheus.parseMetrics(kMetrics);
  assert.deepEqual(samples.get('a_total')[0], { labels: { model_name: 'x "y" {z}\n', weights: '1' }, value: 3 });
  assert.equal(prometheus.sum(samples, 'a_total'), 7.5);
  assert.equal(prometheus.sum(samples, 'plain'), 1000);
  assert.equal(prometheus.sum(samples, 'absent'), undefined);
});

test('histograms: cumulative buckets of all series become counts; quantiles lie within their bucket', () => {
  const h = prometheus.histogram(prometheus.parseMetrics(kMetrics), 'h');
  assert.deepEqual(h, { bounds: [0.1, 0.5, Infinity], counts: [1, 6, 1], sum: 3 });
  assert.equal(prometheus.total(h), 8);
  assert.ok(Math.abs(prometheus.quantile(h, 0.5) - 0.3) < 1e-12); // 4 of 8: half through the six of 0.1 to 0.5
  assert.equal(prometheus.quantile(h, 1), 0.5); // beyond the last bound nothing is known
  assert.ok(Number.isNaN(prometheus.quantile({ bounds: [1], counts: [0], sum: 0 }, 0.5)));
});

test('histograms: the difference of two readings, and a server that was restarted in between', () => {
  const early = { bounds: [1, Infinity], counts: [2, 1], sum: 5 };
  const late = { bounds: [1, Infinity], counts: [5, 1], sum: 7 };
  assert.deepEqual(prometheus.since(late, early), { bounds: [1, Infinity], counts: [3, 0], sum: 2 });
  assert.equal(prometheus.since(early, late), early);
  assert.equal(prometheus.since(late, undefined), late);
});

const said = (c, text) => conversation.setLastAnswer(c, { ...conversation.newAnswer(), text, finish: 'stop' });

test('a conversation sends what was said, and leaves out questions without an answer', () => {
  let c = said(conversation.ask(conversation.empty, 'one'), 'first');
  c = conversation.ask(c, 'lost'); // its answer stays empty
  c = conversation.ask(c, 'two');
  assert.deepEqual(conversation.messagesOf(c, ' be brief '), [
    { role: 'system', content: ' be brief ' },
    { role: 'user', content: 'one' },
    { role: 'assistant', content: 'first' },
    { role: 'user', content: 'two' },
  ]);
  assert.equal(conversation.messagesOf(c, '  ')[0].role, 'user');
});

test('answering again keeps the answers before, drops empty ones, and sends the one that is shown', () => {
  let c = said(conversation.ask(conversation.empty, 'q'), 'A');
  c = said(conversation.answerAgain(c), 'B');
  c = conversation.answerAgain(c); // says nothing
  c = said(conversation.answerAgain(c), 'C');
  assert.deepEqual(
    c.turns[0].answers.map(a => a.text),
    ['A', 'B', 'C'],
  );
  c = conversation.show(c, c.turns[0].id, 0);
  assert.equal(conversation.messagesOf(conversation.ask(c, 'next'), '')[1].content, 'A');
  assert.equal(conversation.show(c, c.turns[0].id, 99).turns[0].shown, 2);
});

test('editing a question drops what followed it', () => {
  let c = said(conversation.ask(conversation.empty, 'one'), 'first');
  c = said(conversation.ask(c, 'two'), 'second');
  c = conversation.askAgain(c, c.turns[0].id, 'uno');
  assert.deepEqual(
    c.turns.map(t => t.question),
    ['uno'],
  );
  assert.equal(c.turns[0].answers[0].text, '');
});

test('a character that is split over tokens is shown with the token that completes it', () => {
  const stream = new answers.AnswerStream(0);
  const [a, b, c] = [[0xe2, 0x82], [0xac], [0x21]].map(bytes => ({
    bytes,
    logprob: -1,
    top: [{ bytes, logprob: -1 }],
  }));
  stream.take({ kind: 'tokens', tokens: [a] }, 1);
  stream.take({ kind: 'tokens', tokens: [b, c] }, 2);
  assert.deepEqual(
    stream.answer.tokens.map(t => t.text),
    ['', '€', '!'],
  );
  assert.equal(stream.answer.tokens[0].top[0][0], '<e2><82>');
});

test('settings: empty is not sent, wrong is said', () => {
  const field = name => settings.kNumberFields.find(f => f.name === name);
  assert.equal(settings.readNumber(field('temperature'), '  '), undefined);
  assert.equal(settings.readNumber(field('temperature'), '0.7'), 0.7);
  assert.equal(typeof settings.readNumber(field('temperature'), '2.1'), 'string');
  assert.equal(typeof settings.readNumber(field('seed'), '1.5'), 'string');
  assert.equal(typeof settings.readNumber(field('top_k'), 'many'), 'string');
  assert.deepEqual(settings.requestFields({ system: '', probabilities: true, numbers: { seed: 0 } }), {
    seed: 0,
    logprobs: true,
    top_logprobs: 5,
  });
});

test('the scale of a chart is the next 1, 2 or 5 of a power of ten', () => {
  assert.deepEqual([0, 0.03, 1, 1.1, 4, 70, 100].map(time.ceiling), [1, 0.05, 1, 2, 5, 100, 100]);
});

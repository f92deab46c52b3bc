// Gaps between the tokens of running streams, alone and while a long prompt is computed beside them.
//
//   hone serve MODEL --ctx 10240 & node bench/stream_gaps.mjs [URL] [--streams 4] [--prompt 8192] [--step-ms 200]
//
// Prints one JSON object, and a verdict on stderr; exit code 10 if the bound is not kept. `bound_ms` is twice the median gap of the streams alone plus the server's --step-ms; `kept` says whether
// the 99th percentile of the gaps during the prompt is below it.
const args = process.argv.slice(2)
const flag = (name, otherwise) => {
  const at = args.indexOf('--' + name)
  return at < 0 ? otherwise : Number(args.splice(at, 2)[1])
}
const streams = flag('streams', 4), promptTokens = flag('prompt', 8192), stepMs = flag('step-ms', 200)
const url = args[0] ?? 'http://127.0.0.1:8080'

const post = (path, body, signal) =>
  fetch(url + path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body), signal })
const wait = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000))
const model = (await (await fetch(url + '/v1/models')).json()).data[0].id

// One stream without an end; the times of its chunks.
async function stream(number, times, signal) {
  const body = { model, prompt: `Story ${number}: once`, max_tokens: 4096, stream: true, ignore_eos: true, temperature: 1, seed: number }
  try {
    const response = await post('/v1/completions', body, signal)
    if (!response.ok) throw new Error(await response.text())
    for await (const chunk of response.body) {
      const now = performance.now()
      for (let at = -1; (at = chunk.indexOf(10, at + 1)) >= 0; ) if (chunk[at + 1] === 10) times.push(now), at++
    }
  } catch (error) {
    if (!signal.aborted) throw error
  }
}

const abort = new AbortController()
const times = Array.from({ length: streams }, () => [])
const running = times.map((list, i) => stream(i + 1, list, abort.signal))
while (times.some((list) => list.length < 5)) await wait(0.1)
const alone = performance.now()
await wait(5)
const begin = performance.now()
// Random ids, so that nothing of it is cached.
const ids = Array.from({ length: promptTokens }, () => 10 + Math.floor(Math.random() * 200))
const answer = await (await post('/v1/completions', { model, prompt: ids, max_tokens: 1 })).json()
const end = performance.now()
abort.abort()
await Promise.all(running)
if (answer.error) throw new Error(answer.error.message)

function gaps(from, to) {
  const all = times.flatMap((list) => list.slice(1).map((time, i) => [time, time - list[i]]))
    .filter(([time]) => time >= from && time <= to).map(([, gap]) => gap).sort((a, b) => a - b)
  const at = (share) => all.length === 0 ? null : Math.round(10 * all[Math.min(all.length - 1, Math.floor(all.length * share))]) / 10
  return { count: all.length, p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1) }
}
const idle = gaps(alone, begin), during = gaps(begin, end), bound = 2 * idle.p50_ms + stepMs
console.log(JSON.stringify({ model, streams, prompt_tokens: answer.usage.prompt_tokens, prompt_s: Math.round(end - begin) / 1000,
  idle, during, bound_ms: bound, kept: during.p99_ms <= bound }))
const verdict = during.count === 0 ? 'NO TOKEN came during the prompt' : during.p99_ms <= bound ? 'KEPT' : 'BROKEN'
console.error(`${verdict}: p99 gap ${during.p99_ms} ms while ${answer.usage.prompt_tokens} tokens were prefilled; ` +
  `bound 2 x ${idle.p50_ms} ms + ${stepMs} ms = ${bound} ms`)
process.exitCode = verdict === 'KEPT' ? 0 : 10

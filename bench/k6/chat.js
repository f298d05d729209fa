// Ramps users up and down who chat without streaming, several turns each.
// k6 reads no server-sent events, so that streams are measured elsewhere.
//
//   k6 run -e URL=http://127.0.0.1:8080 -e MODEL=qwen3 chat.js
//
// More settings: USERS (peak, 32), RAMP (30s), HOLD (1m), TURNS (4),
// P95_MS (bound of the 95th percentile, 2000).

import http from "k6/http";
import { check, sleep } from "k6";
import { Counter, Trend } from "k6/metrics";

const url = __ENV.URL || "http://127.0.0.1:8080";
const model = __ENV.MODEL || "bench";
const users = Number(__ENV.USERS || 32);
const turns = Number(__ENV.TURNS || 4);

const moved = new Counter("turns_moved"); // turns answered by another node than the conversation's first
const cached = new Trend("cached_tokens"); // as the engine says, where it says so

export const options = {
  scenarios: {
    chat: {
      executor: "ramping-vus",
      startVUs: 1,
      stages: [
        { duration: __ENV.RAMP || "30s", target: users },
        { duration: __ENV.HOLD || "1m", target: users },
        { duration: __ENV.RAMP || "30s", target: 0 },
      ],
      gracefulRampDown: "10s",
    },
  },
  thresholds: {
    checks: ["rate>0.999"],
    http_req_failed: ["rate<0.001"],
    http_req_duration: [`p(95)<${__ENV.P95_MS || 2000}`],
  },
};

const systems = Array.from({ length: 8 }, (_, i) =>
  `You are assistant number ${i}. ${"Answer briefly, name your source, say when you are not sure. ".repeat(12)}`,
);

const parameters = {
  headers: { "Content-Type": "application/json", Authorization: "Bearer not-a-key" },
  tags: { name: "chat" },
};

// One iteration is one conversation, unlike any other.
export default function () {
  const messages = [{ role: "system", content: systems[__VU % systems.length] }];
  let first = null;
  for (let turn = 0; turn < turns; turn++) {
    messages.push({ role: "user", content: `User ${__VU}, talk ${__ITER}, question ${turn}: what follows from this?` });
    const body = JSON.stringify({ model, messages, max_tokens: 16, temperature: 0 });
    const answer = http.post(`${url}/v1/chat/completions`, body, parameters);
    const good = check(answer, {
      "status is 200": (r) => r.status === 200,
      "has a message": (r) => r.status === 200 && typeof r.json("choices.0.message.content") === "string",
    });
    if (!good) return;
    const node = answer.headers["X-Routed-To"];
    first = first || node;
    if (node && node !== first) moved.add(1);
    const hit = answer.json("usage.prompt_tokens_details.cached_tokens");
    if (typeof hit === "number") cached.add(hit);
    messages.push({ role: "assistant", content: answer.json("choices.0.message.content") });
    sleep(0.05);
  }
}

// Asks for the list of models at a fixed rate, whatever the answers do: an
// open loop, so that latency under load is not hidden by waiting clients.
//
//   k6 run -e URL=http://127.0.0.1:8080 -e RATE=500 models.js
//
// More settings: DURATION (30s), P99_MS (20).

import http from "k6/http";
import { check } from "k6";

const url = __ENV.URL || "http://127.0.0.1:8080";

export const options = {
  scenarios: {
    models: {
      executor: "constant-arrival-rate",
      rate: Number(__ENV.RATE || 500),
      timeUnit: "1s",
      duration: __ENV.DURATION || "30s",
      preAllocatedVUs: 50,
      maxVUs: 500,
    },
  },
  thresholds: {
    checks: ["rate>0.999"],
    http_req_duration: [`p(99)<${__ENV.P99_MS || 20}`],
    dropped_iterations: ["count<1"],
  },
};

export default function () {
  const answer = http.get(`${url}/v1/models`);
  check(answer, {
    "status is 200": (r) => r.status === 200,
    "is a list": (r) => r.status === 200 && r.json("object") === "list",
  });
}

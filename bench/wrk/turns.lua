-- Posts chat requests whose prompts come from a trace of real texts, grown
-- turn by turn: each conversation's request holds all of its earlier turns.
--
--   wrk -t1 -c16 -d10s -s turns.lua http://127.0.0.1:8080 -- FILE.jsonl [MODEL] [TURNS] [LIMIT]
--
-- FILE has one JSON object a line, {"timestamp":…,"requests":[{…,"prompt":"…"}]}.
-- LIMIT bounds the prompts read (default 256), TURNS the turns (default 4).
-- At the end it prints one JSON line that begins with {"wrk":.

-- The raw JSON strings (still escaped, without quotation marks) of every
-- "prompt" key of one line.
local function prompts(line, into, limit)
  local from = 1
  while #into < limit do
    local _, open = line:find('"prompt"%s*:%s*"', from)
    if not open then return end
    local i = open + 1
    while true do
      local c = line:sub(i, i)
      if c == "" then return end
      if c == '"' then break end
      i = i + (c == "\\" and 2 or 1)
    end
    into[#into + 1] = line:sub(open + 1, i - 1)
    from = i + 1
  end
end

local requests, at = {}, 0

function init(args)
  local path = args[1] or error("give the trace: wrk … -s turns.lua URL -- FILE.jsonl")
  local model, turns, limit = args[2] or "bench", tonumber(args[3] or 4), tonumber(args[4] or 256)
  local file, problem = io.open(path, "r")
  if not file then error("read trace: " .. problem) end
  local found = {}
  for line in file:lines() do
    prompts(line, found, limit)
    if #found >= limit then break end
  end
  file:close()
  if #found < turns then error("read trace " .. path .. ": fewer prompts than turns") end
  local headers = { ["Content-Type"] = "application/json" }
  -- Conversation k speaks prompts k, k+1, …; turn t of all of them is posted
  -- before turn t+1 of any, as users who interleave would.
  local conversations = math.floor(#found / turns)
  for turn = 1, turns do
    for k = 0, conversations - 1 do
      local parts = {}
      for t = 1, turn do
        parts[#parts + 1] = '{"role":"user","content":"' .. found[k * turns + t] .. '"}'
        if t < turn then parts[#parts + 1] = '{"role":"assistant","content":"Understood."}' end
      end
      local body = '{"model":"' .. model .. '","messages":[' .. table.concat(parts, ",") .. '],"max_tokens":16}'
      requests[#requests + 1] = wrk.format("POST", "/v1/chat/completions", headers, body)
    end
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    '{"wrk":{"requests":%d,"duration_us":%d,"bytes":%d,"p50_us":%.1f,"p99_us":%.1f,"mean_us":%.1f,'
      .. '"errors_connect":%d,"errors_read":%d,"errors_write":%d,"errors_status":%d,"errors_timeout":%d}}\n',
    summary.requests, summary.duration, summary.bytes,
    latency:percentile(50), latency:percentile(99), latency.mean,
    e.connect, e.read, e.write, e.status, e.timeout))
end

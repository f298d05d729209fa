-- Posts chat requests of one size: 64 different bodies that share 8 system
-- prompts, always the same bytes for the same size.
--
--   wrk -t1 -c64 -d3s -s chat.lua http://127.0.0.1:8080 -- SIZE_BYTES [MODEL]
--
-- At the end it prints one JSON line that begins with {"wrk":.

local BODIES, SYSTEMS = 64, 8

local words = {
  "the", "node", "that", "holds", "a", "prefix", "answers", "before", "any", "other", "so", "we",
  "measure", "how", "long", "each", "request", "waits", "while", "queue", "and", "cache", "grow",
  "token", "block", "engine", "router", "fleet", "reads", "its", "own", "state", "from", "events",
}

-- A small linear congruential generator: the same text on every machine.
local seed
local function draw(n)
  seed = (seed * 1103515245 + 12345) % 2147483648
  return math.floor(seed / 65536) % n + 1
end

-- Text of exactly n bytes as it stands inside a JSON string: words, now and
-- then an escaped line end or quotation mark, as in real prompts.
local function text(n, from)
  seed = from
  local parts, length, i = {}, 0, 0
  while length < n do
    i = i + 1
    local piece = words[draw(#words)] .. " "
    if i % 17 == 0 then piece = piece .. "\\n" end
    if i % 41 == 0 then piece = piece .. "\\\"so\\\" " end
    parts[i], length = piece, length + #piece
  end
  local all = table.concat(parts)
  if #all == n then return all end
  -- Never cut inside an escape: the last word is filled up with dots instead.
  local cut = all:sub(1, math.max(0, n - 4)):gsub("\\+$", "")
  return cut .. string.rep(".", n - #cut)
end

local function message(role, content)
  return '{"role":"' .. role .. '","content":"' .. content .. '"}'
end

-- A conversation of exactly size bytes: a system prompt (a quarter, at most
-- 16 KiB), earlier turns of at most 4 KiB each, and the last user message.
local function body(index, size, model)
  local system_bytes = math.min(math.floor(size / 4), 16384)
  local head = '{"model":"' .. model .. '","messages":['
    .. message("system", text(system_bytes, 7 + index % SYSTEMS))
  local tail = '],"max_tokens":16,"temperature":0}'
  local frame = #message("assistant", "") + 1
  local parts, left, turn = { head }, size - #head - #tail, 0
  while left > 4096 + 2 * frame do
    local role = turn % 2 == 0 and "user" or "assistant"
    local one = "," .. message(role, text(4096 - frame, 1000 + index * 100 + turn))
    parts[#parts + 1], left, turn = one, left - #one, turn + 1
  end
  if turn % 2 == 1 then -- the assistant speaks last but one, briefly
    local one = "," .. message("assistant", "go on")
    parts[#parts + 1], left = one, left - #one
  end
  local last = left - #message("user", "") - 1
  if last < 1 then error("the size is too small for a chat body: " .. size) end
  -- Turns hold different text in every body, the first of them above all.
  parts[#parts + 1] = "," .. message("user", text(last, 500 + index))
  parts[#parts + 1] = tail
  local whole = table.concat(parts)
  if #whole ~= size then error("body of " .. #whole .. " bytes, wanted " .. size) end
  return whole
end

local requests, at = {}, 0

function init(args)
  local size, model = tonumber(args[1] or 4096), args[2] or "bench"
  local headers = {
    ["Content-Type"] = "application/json",
    ["Authorization"] = "Bearer not-a-key",
    ["User-Agent"] = "warmbench",
    ["Accept"] = "application/json",
  }
  for i = 1, BODIES do
    requests[i] = wrk.format("POST", "/v1/chat/completions", headers, body(i - 1, size, model))
  end
end

function request()
  at = at % BODIES + 1
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

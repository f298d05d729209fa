-- Posts chat requests of one size: 64 different bodies that share 8 system
-- prompts, always the same bytes for the same size. Size 0 is a GET.
--
--   wrk -t1 -c64 -d3s -s chat.lua http://127.0.0.1:8080 -- SIZE_BYTES [MODEL] [FIRST]
--
-- With FIRST, a number, no two bodies are alike: all over its text each says its
-- own number in words, counted from FIRST, so that nothing that remembers
-- stretches of text has met it. Sizes stay.
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

-- Where a body says its number: as long as the six words that take its place,
-- and at least once in each MARK_EVERY bytes of text.
local MARK, MARK_EVERY = string.rep("\1", 30), 256
local digits = {
  "that ", "node ", "long ", "wait ", "each ", "they ", "fast ", "slow ",
  "near ", "read ", "text ", "says ", "open ", "call ", "lead ", "turn ",
}
local marked = false

local function words_of(number)
  local parts = {}
  for i = 1, 6 do
    parts[i] = digits[number % 16 + 1]
    number = math.floor(number / 16)
  end
  return table.concat(parts)
end

-- Text of exactly n bytes as it stands inside a JSON string: words, now and
-- then an escaped line end or quotation mark, as in real prompts.
local function text(n, from)
  local tail = marked and n > 2 * #MARK and MARK or ""
  n, seed = n - #tail, from
  local parts, length, i, said = {}, 0, 0, 0
  while length < n do
    i = i + 1
    local piece = words[draw(#words)] .. " "
    if marked and length - said >= MARK_EVERY - 2 * #MARK and n - length > 3 * #MARK then
      piece, said = MARK, length
    end
    if i % 17 == 0 then piece = piece .. "\\n" end
    if i % 41 == 0 then piece = piece .. "\\\"so\\\" " end
    parts[i], length = piece, length + #piece
  end
  local all = table.concat(parts)
  if #all == n then return all .. tail end
  -- Never cut inside an escape: the last word is filled up with dots instead.
  local cut = all:sub(1, math.max(0, n - 4)):gsub("\\+$", "")
  return cut .. string.rep(".", n - #cut) .. tail
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

local requests, at, number = {}, 0, 0

-- The pieces of a request between its marks, each but the last followed by one.
local function pieces(whole)
  local parts, from = {}, 1
  while true do
    local first, last = whole:find(MARK, from, true)
    parts[#parts + 1] = whole:sub(from, (first or 0) - 1)
    if not first then return parts end
    parts[#parts + 1], from = MARK, last + 1
  end
end

function init(args)
  local size, model = tonumber(args[1] or 4096), args[2] or "bench"
  marked, number = args[3] ~= nil, tonumber(args[3] or 0)
  if size == 0 then
    requests[1] = wrk.format("GET", "/v1/files", { ["User-Agent"] = "warmbench", ["Accept"] = "application/json" })
    return
  end
  local headers = {
    ["Content-Type"] = "application/json",
    ["Authorization"] = "Bearer not-a-key",
    ["User-Agent"] = "warmbench",
    ["Accept"] = "application/json",
  }
  for i = 1, BODIES do
    local whole = wrk.format("POST", "/v1/chat/completions", headers, body(i - 1, size, model))
    requests[i] = marked and pieces(whole) or whole
  end
end

function request()
  at = at % #requests + 1
  local one = requests[at]
  if not marked then return one end
  local said = words_of(number)
  number = number + 1
  for i = 2, #one, 2 do one[i] = said end
  return table.concat(one)
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

#!lua
-- Appends messages to their streams, in order, and answers one text for each:
--   A<id>     appended as this entry
--   D<id>     appended before, as that entry
--   N         its stream does not exist
--   E<error>  XADD said no
--   H         held: an earlier message of its key was not appended
--   F         sent before, and longer ago than ids are remembered here
--   W         not looked at, because another one is F
-- Where one is F nothing is written. An error of the script as a whole means that nothing was
-- appended: everything that can fail by itself comes before the first XADD.
--
-- KEYS: the streams; with a window also their current and then their previous hashes of ids.
-- ARGV: window ms (0: no ids), ids at most, "1" if a known id must count as a write, length at most
-- (0: no bound), number of groups, the groups; then for each message: number of its stream, number
-- of its key (0: orders with nothing), event id, ms since its first send (-1: none, or looked for
-- already), number of texts that follow, its fields and values.
local window, ids_max = tonumber(ARGV[1]), tonumber(ARGV[2])
local touch, length_max, groups = ARGV[3] == '1', tonumber(ARGV[4]), tonumber(ARGV[5])
local first = 6 + groups
local streams = window > 0 and #KEYS / 3 or #KEYS
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The field '' of a hash is the time of its first id. The current one becomes the previous one after
-- a window, so an id is remembered for one window at least and two at most, unless there are too
-- many. Both go away by themselves once nothing is sent any more.
local since = {}
if window > 0 then
  for s = 1, streams do
    local current, previous = KEYS[streams + s], KEYS[2 * streams + s]
    local started = tonumber(redis.call('HGET', current, ''))
    local before = tonumber(redis.call('HGET', previous, ''))
    if started and (now - started >= window or redis.call('HLEN', current) > ids_max / 2) then
      redis.call('RENAME', current, previous)
      redis.call('PEXPIRE', previous, window)
      before = started
    end
    since[s] = before or started or now
  end
end

local function known(s, id)
  if window == 0 then
    return nil
  end
  for _, key in ipairs({KEYS[streams + s], KEYS[2 * streams + s]}) do
    local entry = redis.call('HGET', key, id)
    if entry then
      return entry, key
    end
  end
end

local function remember(s, id, entry)
  local current = KEYS[streams + s]
  if redis.call('HSETNX', current, '', now) == 1 then
    redis.call('PEXPIRE', current, 2 * window)
  end
  redis.call('HSET', current, id, entry)
end

local answers, forgotten = {}, false
if window > 0 then
  local at = first
  while at <= #ARGV do
    local s, ago = tonumber(ARGV[at]), tonumber(ARGV[at + 3])
    local lost = ago >= 0 and now - ago < since[s] and not known(s, ARGV[at + 2])
    forgotten = forgotten or lost
    answers[#answers + 1] = lost and 'F' or 'W'
    at = at + 5 + ARGV[at + 4]
  end
end
if forgotten then
  return answers
end

answers = {}
local held, grown = {}, {}
local at = first
while at <= #ARGV do
  local s, key, id = tonumber(ARGV[at]), ARGV[at + 1], ARGV[at + 2]
  local fields = at + 5
  local after = fields + ARGV[at + 4]
  local answer
  if held[key] then
    answer = 'H'
  else
    local entry, where = known(s, id)
    if entry then
      -- WAIT waits for this connection's last write: it must come after the first copy's.
      if touch then
        redis.call('HSET', where, id, entry)
      end
      answer = 'D' .. entry
    else
      entry = redis.pcall('XADD', KEYS[s], 'NOMKSTREAM', '*', unpack(ARGV, fields, after - 1))
      if type(entry) == 'string' then
        answer = 'A' .. entry
        grown[s] = true
        if window > 0 then
          remember(s, id, entry)
        end
      else
        answer = entry and ('E' .. entry.err) or 'N'
        if key ~= '0' then
          held[key] = true
        end
      end
    end
  end
  answers[#answers + 1] = answer
  at = after
end

-- Numbers of ids may be larger than Lua's are exact.
local function less(a, b)
  if #a ~= #b then
    return #a < #b
  end
  return a < b
end

local function before(a, b)
  local a_ms, a_n = string.match(a, '^(%d+)-(%d+)$')
  local b_ms, b_n = string.match(b, '^(%d+)-(%d+)$')
  if a_ms ~= b_ms then
    return less(a_ms, b_ms)
  end
  return less(a_n, b_n)
end

-- Only what every group has confirmed, and no more than is too much. Where a group that must be
-- there is missing, nothing.
local function trim(stream)
  local excess = redis.call('XLEN', stream) - length_max
  if excess <= 0 then
    return
  end
  local found, floor = {}, nil
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local facts = {}
    for at = 1, #group, 2 do
      facts[group[at]] = group[at + 1]
    end
    found[facts['name']] = true
    local unconfirmed = facts['last-delivered-id']
    if facts['pending'] > 0 then
      unconfirmed = redis.call('XPENDING', stream, facts['name'], '-', '+', 1)[1][1]
    end
    if not floor or before(unconfirmed, floor) then
      floor = unconfirmed
    end
  end
  for at = 6, 5 + groups do
    if not found[ARGV[at]] then
      return
    end
  end
  if floor then
    redis.call('XTRIM', stream, 'MINID', '~', floor, 'LIMIT', excess)
  end
end

if length_max > 0 then
  for s in pairs(grown) do
    -- What was appended is appended, whatever becomes of this.
    pcall(trim, KEYS[s])
  end
end
return answers

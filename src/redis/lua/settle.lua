-- Lets charges become other amounts, or lets holds go on.
--
--   KEYS      one for each rule that was charged
--   ARGV[1]   doubles: now or 0, when it was charged, number of the hold, 1 to renew; for each rule: cells; for each of its cells:
--             algorithm, kind (0: a charge, 1: a hold that is released when it is over, 2: one that is kept), nth, what it was,
--             what it is to be, origin (of a window its end, of a sliding one its start, as the charge left it), max, per (of a
--             window its length), by how much the end of a window may be off, as that of a slice may: windows that follow each
--             other end further apart; to renew: how long the hold lasts from now on
--   ARGV[2]   the mark of the receipt, or nothing
--   ARGV[3…]  the field of each cell
--
-- A hold is settled if it is there, so only once. A charge leaves a mark where it changed something, unless it was the last to
-- know of that charge. Answers how many cells have changed, an integer: no charge of a subject that was forgotten since.
--@ names.lua
local now, taken, id, renews, at = unpack('<dddd', packed)
local mark = ARGV[2]
--@ clock.lua
--@ amend.lua

-- Returns the time of a hold; negative: it is over, and was given back. Nothing: it is not there.
local function time_of(holds, member)
  local time = pcall('ZSCORE', holds, member)
  return type(time) == 'string' and tonumber(time)
end

local function renew(key, algorithm, per, holds, member, ttl)
  local time = time_of(holds, member)
  if not time or time <= now then return 0 end
  call('ZADD', holds, now + ttl, member)
  for _, key in ipairs(algorithm == 4 and { key, holds } or { holds }) do
    local need, spare = ttl + (algorithm == 0 and math.min(per, 86400000000) or 0), 0
    --@ keep.lua
  end
  return 1
end

-- Returns whether this receipt has not changed this charge before, and remembers that for as long as it could.
local function is_first(holds, nth, need)
  local key, spare, name = holds, 0, 'm' .. mark .. pack('<H', nth)
  if mark == '' then return true end
  if time_of(holds, name) then return false end
  if need < 1000000 then need = 1000000 end
  if need > 86400000000 then need = 86400000000 end
  call('ZREMRANGEBYSCORE', holds, -now, -1)
  call('ZADD', holds, -(now + need), name)
  --@ keep.lua
  return true
end

local cell, given = 2, 0
for rule = 1, #KEYS do
  local key, cells = KEYS[rule]
  local holds = key .. ':h'
  cells, at = unpack('<d', packed, at)
  local freed = call('GET', key .. ':freed')
  freed = freed and taken <= (tonumber(freed) or taken)
  local stored = pcall('HMGET', key, spread(ARGV, cell + 1, cell + cells))
  if stored.err then
    local field, why = ARGV[cell + 1], stored.err
    --@ refuse.lua
  end
  for i = 1, cells do
    local algorithm, kind, nth, amount, to, origin, max, per, off, ttl, state, need, member
    algorithm, kind, nth, amount, to, origin, max, per, off, ttl, at = unpack('<dddddddddd', packed, at)
    cell = cell + 1
    local field, from, rate, length = ARGV[cell], amount, max, per
    if kind > 0 then
      --@ name_hold.lua
      local time = renews == 0 and time_of(holds, member)
      if renews == 1 then
        given = given + renew(key, algorithm, per, holds, member, ttl)
      elseif time then
        call('ZREM', holds, member)
        if time < 0 and kind == 1 then from = 0 end
        state, need = amend(algorithm, stored[i], from, to, origin, rate, length, off)
        given = given + 1
      end
    elseif renews == 0 and from ~= to and not freed then
      -- A bucket has no window: its charge is over when it has come back, and not sooner than after its period.
      local lasts = off
      if algorithm == 0 then lasts = length * math.max(1, from / rate) elseif algorithm == 2 then lasts = 2 * length end
      lasts = lasts - (now - origin)
      if lasts > 0 then state, need = amend(algorithm, stored[i], from, to, origin, rate, length, off) end
      if state and not is_first(holds, nth, lasts) then state = nil end
      if state then given = given + 1 end
    end
    if state then
      call('HSET', key, field, state)
      if to > from then
        local spare = 0
        --@ keep.lua
      end
    end
  end
end
return given

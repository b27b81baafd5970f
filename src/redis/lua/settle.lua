-- Lets charges become other amounts, lets holds go on, or enters holds that were charged to slices.
--
--   KEYS      one for each rule that was charged
--   ARGV[1]   doubles: now or 0, when it was charged, when its holds end unless they are renewed, number of the hold, what to do
--             (0: settle, 1: renew, 2: enter); for each rule: cells; for each of its cells:
--             algorithm, kind (0: a charge, 1: a hold that is released when it is over, 2: one that is kept), nth, what it was,
--             what it is to be, origin (of a window its end, of a sliding one its start, as the charge left it), max, per (of a
--             window its length), by how much the end of a window may be off, as that of a slice may: windows that follow each
--             other end further apart; to renew: how long the hold lasts from now on
--   ARGV[2]   the mark of the receipt, or nothing
--   ARGV[3…]  the field of each cell
--
-- A hold is settled if it is there, so only once. A charge leaves a mark where it changed something, unless it was the last to
-- know of that charge.
--
-- A hold whose end may be off is one of a slice. It was charged when the slice was lent, and its host enters it afterwards:
-- that message may be lost, and others may come before it. So whoever comes first enters it, and its settlement leaves a mark,
-- which says that it is not to be entered any more. All of that ends with its window, and a day after the end of the hold.
--
-- Answers how many cells have changed, an integer: no charge of a subject that was forgotten since. All or nothing: everything is
-- looked at before the first write. While the slot moves, a key that is not here may be on another node, so the answer is an error
-- unless all three are here.
--@ names.lua
local now, taken, ends, id, what, at = unpack('<ddddd', packed)
local mark, DAY = ARGV[2], 86400000000
--@ clock.lua
--@ amend.lua

-- Returns the time of a hold; negative: it is over, and was given back. Nothing: it is not there.
local function time_of(holds, member)
  local time = pcall('ZSCORE', holds, member)
  return type(time) == 'string' and tonumber(time)
end

local function stay(key, need)
  local spare = 0
  --@ keep.lua
end

local function renew(key, algorithm, per, holds, member, time, ttl)
  if not time or time <= now then return 0 end
  call('ZADD', holds, now + ttl, member)
  local need = ttl + (algorithm == 0 and math.min(per, DAY) or 0)
  if algorithm == 4 then stay(key, need) end
  stay(holds, need)
  return 1
end

-- Returns whether this receipt has not changed this charge before.
local function is_first(holds, nth)
  return mark == '' or not time_of(holds, 'm' .. mark .. pack('<H', nth))
end

-- Remembers that it has, for as long as it could.
local function leave_mark(holds, nth, need)
  if mark == '' then return end
  if need < 1000000 then need = 1000000 end
  call('ZADD', holds, -(now + need), 'm' .. mark .. pack('<H', nth))
  call('ZREMRANGEBYSCORE', holds, -now, -1)
  stay(holds, need)
end

-- Returns the time of a hold of a slice, as time_of does, and whether it is not there. Nothing: it was settled, or it is too late.
-- Whoever settles it leaves a mark; the others enter it if it is not there. It lasts from now on, since the clock that `taken` was
-- told by may have stepped.
local function time_in_slice(holds, member, nth, lasts)
  local good = math.min(ends, taken + DAY) + DAY - now -- no hold is reserved for longer than a day
  if lasts <= 0 or good <= 0 or not is_first(holds, nth) then return end
  local time = time_of(holds, member)
  if what == 0 then
    leave_mark(holds, nth, math.min(lasts, good))
  elseif not time and (what == 2 or ends > now) then
    time = now + ends - taken
    call('ZADD', holds, time, member)
    stay(holds, lasts)
  end
  return time or what == 0 and ends, not time
end

-- Of each rule: whether its subject was forgotten since, which is seldom, and what its fields are. A key that stands twice is read
-- again when the first of its rules has changed it.
local all_freed, all_stored, cell, given, begins = {}, {}, 2, 0, at
for rule = 1, #KEYS do
  local key, cells = KEYS[rule]
  cells, at = unpack('<d', packed, at)
  local field, stored, why = ARGV[cell + 1], pcall('HMGET', key, spread(ARGV, cell + 1, cell + cells))
  local freed = pcall('GET', key .. ':freed')
  local here = type(freed) == 'string' and pcall('EXISTS', key, key .. ':h')
  if stored.err then
    why = stored.err
  elseif type(freed) == 'table' then
    why = freed.err
  elseif type(here) == 'table' then
    why = here.err
  end
  if why then
    --@ refuse.lua
  end
  for other = 1, rule - 1 do
    if KEYS[other] == key then stored = false end
  end
  all_freed[rule], all_stored[rule] = freed and taken <= (tonumber(freed) or taken), stored
  cell, at = cell + cells, at + 80 * cells
end

cell, at = 2, begins
for rule = 1, #KEYS do
  local key, freed, stored, cells = KEYS[rule], all_freed[rule], all_stored[rule]
  local holds = key .. ':h'
  cells, at = unpack('<d', packed, at)
  stored = stored or call('HMGET', key, spread(ARGV, cell + 1, cell + cells))
  for i = 1, cells do
    local algorithm, kind, nth, amount, to, origin, max, per, off, ttl, state, need, member
    algorithm, kind, nth, amount, to, origin, max, per, off, ttl, at = unpack('<dddddddddd', packed, at)
    cell = cell + 1
    local field, from, rate, length = ARGV[cell], amount, max, per
    if kind > 0 then
      --@ name_hold.lua
      local time, absent
      if off == 0 then
        time = time_of(holds, member)
      elseif not freed then
        time, absent = time_in_slice(holds, member, nth, origin + off - now)
      end
      if what == 1 then
        given = given + renew(key, algorithm, length, holds, member, time, ttl)
      elseif what == 0 and time then
        if not absent then call('ZREM', holds, member) end
        if time < 0 and kind == 1 then from = 0 end
        state, need = amend(algorithm, stored[i], from, to, origin, rate, length, off)
        given = given + 1
      end
    elseif what == 0 and from ~= to and not freed then
      -- A bucket has no window: its charge is over when it has come back, and not sooner than after its period. One that a
      -- reservation only looked at has no hold, but its true amount is known no sooner than those of the holds.
      local lasts, reserved = off, math.max(0, ends - taken)
      if algorithm == 0 then
        lasts = length * math.max(1, from / rate) + (from == 0 and reserved or 0)
      elseif algorithm == 2 then
        lasts = 2 * length
      end
      lasts = lasts - (now - origin)
      if lasts > 0 then state, need = amend(algorithm, stored[i], from, to, origin, rate, length, off) end
      if state and not is_first(holds, nth) then state = nil end
      if state then
        leave_mark(holds, nth, math.min(lasts, reserved + DAY))
        given = given + 1
      end
    end
    if state then
      call('HSET', key, field, state)
      if to > from then stay(key, need) end
    end
  end
end
return given

-- Decides on all cells of a plan: look at all, then take all.
--
--   KEYS      one for each rule
--   ARGV[1]   doubles: now or 0, cost, 1 to charge; for each rule: cells, 1 if it is a shadow; for each of its cells:
--             algorithm, max, debt, and: bucket per, capacity, 0 · fixed and sliding per, 0, 0 · calendar start, end, end
--             of the next window
--   ARGV[2…]  the field of each cell
--
-- Answers: a status and the clock as doubles; unless all fit, a byte for each rule and each of its cells, '1' if it has room;
-- the state of each cell.
local STALE, REFUSED, ALLOWED, ALL_FIT = 0, 1, 2, 3
local now, cost, charge, at = unpack('<ddd', packed)
now = clock(now)
local UNUSED = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local UNUSED_BUCKET = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'

-- Each algorithm says of a cell: has it room; its state as it is, and is that another one than is stored; its state when
-- charged; how long it needs to be kept, and how much longer it may well be. Nothing: damaged.

local function look_window(value, max, debt, finish, length)
  local count, moved
  finish, length, count, moved = window_at(value, now, finish, length)
  if not finish then return end
  if moved or debt > 0 then
    count = count + debt
    if count > COUNT_MAX then count = COUNT_MAX end
    value, moved = pack('<ddd', finish, length, count), true
  end
  if max > 0 and (count + cost <= max or cost == 0) then
    return true, value or UNUSED, moved, pack('<ddd', finish, length, count + cost), finish - now, 0
  end
  return false, value or UNUSED, moved, nil, finish - now, 0
end

-- A sliding window at `now`: start, previous count, count, how far into it now is, whether it was moved.
local function slide_at(value, per)
  if not value then return now, 0, 0, 0, false end
  if #value ~= 24 then return end
  local start, previous, count = unpack('<ddd', value)
  if not (start >= 0 and start < 2 ^ 53 and previous >= 0 and previous <= COUNT_MAX and count >= 0 and
      count <= COUNT_MAX) then
    return
  end
  local offset, moved = now - start, false
  if offset < 0 then
    if offset < -per and previous + count > 0 then start, moved = now, true end
    offset = 0
  end
  if offset >= per then
    previous, count = offset - per < per and count or 0, 0
    start, offset = start + per, offset - per
  end
  if previous + count == 0 then return now, 0, 0, 0, moved end
  return start, previous, count, offset, moved
end

local function look_slide(value, max, debt, per)
  local start, previous, count, offset, moved = slide_at(value, per)
  if not start then return end
  if moved or debt > 0 then
    count = count + debt
    if count > COUNT_MAX then count = COUNT_MAX end
    value, moved = pack('<ddd', start, previous, count), true
  end
  local in_view, rest = muldiv(per - offset, previous, per)
  if rest > 0 then in_view = in_view + 1 end
  local need = start + 2 * per - now
  if max > 0 and (in_view + count + cost <= max or cost == 0) then
    return true, value or UNUSED, moved, pack('<ddd', start, previous, count + cost), need, 0
  end
  return false, value or UNUSED, moved, nil, need, 0
end

local function look_bucket(value, max, debt, per, capacity)
  local used, when, moved = 0, now, false
  if value then
    if #value ~= 16 then return end
    when, used = unpack('<dd', value)
    if not (when >= 0 and when < 2 ^ 53 and used >= 0 and used <= COUNT_MAX * TOKEN) then return end
    local elapsed = now - when
    if elapsed >= 0 or used == 0 then
      when, used = now, used - come_back(elapsed > 0 and elapsed or 0, max, per, used)
      if used < 0 then used = 0 end
    elseif elapsed < -per then
      when, moved = now, true
    end
  end
  if moved or debt > 0 then
    used = used + debt * TOKEN
    if used > COUNT_MAX * TOKEN then used = COUNT_MAX * TOKEN end
    value, moved = pack('<dd', when, used), true
  end
  local next_used = used + cost * TOKEN
  local need = when - now + next_used / (max * TOKEN) * per
  if max > 0 and (next_used <= capacity * TOKEN or cost == 0) then
    return true, value or UNUSED_BUCKET, moved, pack('<dd', when, next_used), need, need / 8
  end
  return false, value or UNUSED_BUCKET, moved, nil, need, need / 8
end

-- Look at all.
local states, charged, lacking, changed = {}, {}, nil, nil -- of each cell, in the order of the fields
local plan = {}                                            -- of each rule: cells, shadow, fits, need, spare
local cell, passed = 0, true
for rule = 1, #KEYS do
  local cells, shadow, fits, need, spare = 0, 0, true, 0, 0
  cells, shadow, at = unpack('<dd', packed, at)
  local stored = pcall('HMGET', KEYS[rule], spread(ARGV, cell + 2, cell + 1 + cells))
  if stored.err then return refuse(KEYS[rule], nil, stored.err) end
  for i = 1, cells do
    local algorithm, max, debt, a, b, c, room, moved, its_need, its_spare
    algorithm, max, debt, a, b, c, at = unpack('<dddddd', packed, at)
    cell = cell + 1
    if algorithm == CALENDAR then
      a, b = calendar_at(now, a, b, c)
      if not a then return pack('<dd', STALE, now) end
      room, states[cell], moved, charged[cell], its_need, its_spare = look_window(stored[i], max, debt, a, b)
    elseif algorithm == FIXED then
      room, states[cell], moved, charged[cell], its_need, its_spare = look_window(stored[i], max, debt, now + a, a)
    elseif algorithm == SLIDING then
      room, states[cell], moved, charged[cell], its_need, its_spare = look_slide(stored[i], max, debt, a)
    else
      room, states[cell], moved, charged[cell], its_need, its_spare = look_bucket(stored[i], max, debt, a, b)
    end
    if room == nil then return refuse(KEYS[rule], ARGV[cell + 1], 'this is no state of a limit') end
    if not room then
      fits, lacking = false, lacking or {}
      lacking[cell] = true
    end
    if moved then
      changed = changed or {}
      changed[cell] = true
    end
    if its_need > need then need, spare = its_need, its_spare end
  end
  if not fits and shadow == 0 then passed = false end
  plan[5 * rule - 4], plan[5 * rule - 3], plan[5 * rule - 2], plan[5 * rule - 1], plan[5 * rule] =
    cells, shadow, fits, need, spare
end

-- Take all.
local flags = lacking and {}
charge = charge > 0 and cost > 0 and passed
cell = 0
for rule = 1, #KEYS do
  local key, cells, fits, need, spare, write =
    KEYS[rule], plan[5 * rule - 4], plan[5 * rule - 2], plan[5 * rule - 1], plan[5 * rule], nil
  if flags then flags[#flags + 1] = fits and '1' or '0' end
  for i = cell + 1, cell + cells do
    if flags then flags[#flags + 1] = lacking[i] and '0' or '1' end
    if charge and fits then states[i] = charged[i] end
    if charge and fits or changed and changed[i] then
      write = write or {}
      write[#write + 1] = ARGV[i + 1]
      write[#write + 1] = states[i]
    end
  end
  if write then
    call('HSET', key, spread(write))
    keep(key, need, spare)
  end
  cell = cell + cells
end
local status = not flags and ALL_FIT or passed and ALLOWED or REFUSED
return pack('<dd', status, now) .. (flags and table.concat(flags) or '') .. table.concat(states)

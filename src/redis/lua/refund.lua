-- Gives back what a decision has charged.
--
--   KEYS      one for each rule that was charged
--   ARGV[1]   doubles: now or 0, when it was charged; for each rule: cells; for each of its cells: algorithm, cost, max, per,
--             and of a window its end, of a sliding one its start, as the charge left it; of a window instead of max by how
--             much its end may be off, as that of a slice may: windows that follow each other end further apart
--   ARGV[2…]  the field of each cell
--
-- Answers how many cells got something back, an integer: none of a subject that was forgotten since.
--@ names.lua
local now, taken, at = unpack('<dd', packed)
--@ clock.lua

local function less(count, by)
  return count > by and count - by or 0
end

-- Each gives the state after it. Nothing: there is nothing to give back to.

local function refund_window(value, cost, off, finish)
  local its_finish, length, count = unpack('<ddd', value)
  if math.abs(its_finish - finish) <= math.min(off, length / 4) then return pack('<ddd', its_finish, length, less(count, cost)) end
end

local function refund_slide(value, cost, start, per)
  local its_start, previous, count = unpack('<ddd', value)
  if its_start == start then return pack('<ddd', its_start, previous, less(count, cost)) end
  if its_start == start + per then return pack('<ddd', its_start, less(previous, cost), count) end
end

-- The cost less what has come back since, which is rounded up. Nobody knows how much that is if the clock was wrong then.
local function refund_bucket(value, cost, max, per)
  if taken > now + 1000000 then return end
  local elapsed, tokens, parts, rest = now > taken and now - taken or 0, cost, 0
  --@ come_back.lua
  if rest > 0 then parts = parts - 1 end
  if tokens == 0 and parts <= 0 then return end
  local given_tokens, given_parts, when, why, state = tokens, parts
  --@ read_bucket.lua
  if why then return end
  tokens, parts = tokens - given_tokens, parts - given_parts
  if parts < 0 then tokens, parts = tokens - 1, parts + 2 ^ 20 end
  if parts >= 2 ^ 20 then tokens, parts = tokens + 1, parts - 2 ^ 20 end
  if tokens < 0 then tokens, parts = 0, 0 end
  --@ bucket_state.lua
  return state
end

local cell, given = 0, 0
for rule = 1, #KEYS do
  local key, cells = KEYS[rule], 0
  cells, at = unpack('<d', packed, at)
  local freed = call('GET', key .. ':freed')
  local stored = pcall('HMGET', key, spread(ARGV, cell + 2, cell + 1 + cells))
  if stored.err then
    local field, why = ARGV[cell + 2], stored.err
    --@ refuse.lua
  end
  for i = 1, cells do
    local algorithm, cost, max, per, window, state
    algorithm, cost, max, per, window, at = unpack('<ddddd', packed, at)
    cell = cell + 1
    local value = stored[i]
    if value and cost > 0 and not freed and (algorithm == 0 or #value == 24) then
      if algorithm == 0 then
        state = refund_bucket(value, cost, max, per)
      elseif algorithm == 2 then
        state = refund_slide(value, cost, window, per)
      else
        state = refund_window(value, cost, max, window)
      end
    end
    if state then
      call('HSET', key, ARGV[cell + 1], state)
      given = given + 1
    end
  end
end
return given

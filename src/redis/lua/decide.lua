-- Decides on the cells of some plans, one plan after another: look at all cells of a plan, then take all.
--
--   KEYS      of each plan one for each rule, shadows last. Or none: then ARGV has them
--   ARGV[1]   doubles: now or 0; for each plan: 1 to charge, 2 to charge and hold, 0 to look, -1 to look for a request that is to
--             be charged; rules, cells in all; for each rule: cells, 1
--             if it is a shadow; for each of its cells: algorithm (8 more with overdraft; 16 more: charged
--             whether or not there is room, 32 more: the cost is given back, both whatever the others say; such rules come
--             first), max, debt, cost, and: bucket per, capacity, 0 · fixed and
--             sliding per, 0, 0 · calendar start, end, end of the next window · slots the time of the hold, 0, 0; of a plan that
--             holds: its number, and for each cell: for how long, how much of its cost, kind (0: it is not held, 1: released when
--             it is over, 2: kept then), nth
--   ARGV[2…]  the field of each cell. Without KEYS, of each plan its keys and then the fields of its cells: so the plans of a call may
--             be in different slots of a cluster. Redis lets scripts without a line "#!" use all keys of the node; it wants
--             declared ones to be in one slot
--
-- Answers for each plan: a status and the clock as doubles; the state of each cell; unless all fit, a byte for each rule and
-- each of its cells, '1' if it has room. Only a status of 0 and the clock: this is in neither of the two windows that were
-- passed. A status of 4, the clock, a length and so many bytes: why it cannot be decided on; nothing is changed by it then. The text
-- begins with TRYAGAIN if a key is on another node.
--@ names.lua
local now, at = unpack('<d', packed)
--@ clock.lua
if not KEYS[1] then KEYS = ARGV end
local ZEROS = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'

-- The keys of the plan stand behind so many others, and its fields from there on; `at` is where its rules are.
local function decide(keys, fields, at, charge, rules, held, mends)
  -- Look at all. Tables are made with some room, and only if needed: growing one costs as much as a command.
  local cells, shadow, states, fits, need, spare -- of the rule at hand
  local plan = rules > 1 and {} -- of each, if there are many
  local charged = { false, false, false, false } -- of each cell, counted from 1: its state with the cost, if it has one
  local changed, lacking -- of each cell: its state is not the one that is stored; it has no room
  local sure, over -- of each cell: it is written in any case; what later cells of the same field find then, by key and field
  local cell, passed, begins = fields, true, at
  for rule = 1, rules do
    local key, look = KEYS[keys + rule], held or now % 16 == 0
    fits, need, spare = true, 0, 0
    cells, shadow, at = unpack('<dd', packed, at)
    states = pcall('HMGET', key, spread(ARGV, cell + 1, cell + cells))
    if states.err then
      local field, why = ARGV[cell + 1], states.err
      --@ refuse_plan.lua
    end
    local i, may_fold = 0, true
    while i < cells do
      i = i + 1
      if over then states[i] = over[key .. ' ' .. ARGV[cell + 1]] or states[i] end
      local value, algorithm, max, debt, cost, a, b, c, room, moved, why = states[i]
      algorithm, max, debt, cost, a, b, c, at = unpack('<ddddddd', packed, at)
      cell = cell + 1
      local least, insists, back = cost -- that has to fit
      if algorithm >= 16 then
        insists = true
        if algorithm >= 32 then back, cost, least = cost, 0, 0 end
        algorithm = algorithm % 16
      end
      if algorithm >= 8 then
        algorithm = algorithm - 8
        if cost > 1 then least = 1 end
      end
      if algorithm == 0 then
        local when, tokens, parts, state
        --@ bucket.lua
        local wait = when - now + (tokens + cost + parts / 2 ^ 20) / max * a
        if wait > need then need, spare = wait, wait / 8 end
        look = true
        if moved then
          --@ bucket_state.lua
          states[i] = state
        elseif not value then
          states[i] = ZEROS:sub(9)
        end
        if back then
          room = true
          if charge and back > 0 and tokens + parts > 0 then
            if tokens >= back then tokens = tokens - back else tokens, parts = 0, 0 end
            --@ bucket_state.lua
            charged[cell - fields] = state
          end
        elseif charge and (room or insists and max > 0) and cost > 0 then
          if cost <= 2 ^ 53 - 1 - tokens then tokens = tokens + cost else tokens, parts = 2 ^ 53 - 1, 0 end
          --@ bucket_state.lua
          charged[cell - fields] = state
        end
      elseif algorithm == 4 then
        local count
        --@ slots.lua
        room, look = back or count <= max - cost, true
        if cost > 0 and a > need then need, spare = a, 0 end
        states[i] = pack('<d', count)
        if charge and room and cost > 0 then charged[cell - fields] = pack('<d', count + cost) end
      else
        local first, second, count, begun, wait
        if algorithm == 2 then
          local start, previous
          --@ slide.lua
          first, second, wait = start, previous, start + 2 * a - now
        else
          local finish, length
          --@ window.lua
          first, second, wait, room = finish, length, finish - now, count <= max - least
        end
        if count + cost > 0 then
          if wait > need then need, spare = wait, 0 end
          look = look or begun or moved
        end
        if moved then states[i] = pack('<ddd', first, second, count) elseif not value then states[i] = ZEROS end
        if back then
          room = true
          if charge and back > 0 and count > 0 then
            charged[cell - fields] = pack('<ddd', first, second, count > back and count - back or 0)
          end
        elseif charge and (room or insists) and cost > 0 then
          local most = (algorithm == 2 and 2 ^ 32 or 2 ^ 53) - 1
          charged[cell - fields] = pack('<ddd', first, second, cost <= most - count and count + cost or most)
        end
      end
      if insists and (charged[cell - fields] or debt > 0) then
        sure, over = sure or {}, over or {}
        sure[cell], over[key .. ' ' .. ARGV[cell]] = charged[cell - fields], charged[cell - fields] or states[i]
      end
      local folded
      if not why and may_fold and (held or max > 0 and not room) then
        may_fold = false
        --@ fold.lua
      end
      if why then
        local field = ARGV[cell]
        --@ refuse_plan.lua
      end
      -- The plan is judged again, from its first rule on: that may have the same key.
      if folded then return decide(keys, fields, begins, charge, rules, held, mends) end
      -- A clock that was wrong is put right in cells that refuse for it, as src/engine does.
      if moved and (debt > 0 or mends and (shadow == 0 or charge and passed) and not back and (max == 0 or not room)) then
        changed = changed or {}
        changed[cell] = true
      end
      if not back and (max == 0 or not room) then
        fits, lacking = false, lacking or {}
        lacking[cell] = true
      end
    end
    if not fits and shadow == 0 then passed = false end
    if not look then need = 0 end
    if plan then plan[rule] = { cells, states, fits, need, spare } end
  end

  -- Take all.
  local answer, flags = pack('<dd', not lacking and 3 or passed and 2 or 1, now), ''
  charge, cell = charge and passed, fields
  for rule = 1, rules do
    local key, own = KEYS[keys + rule], cell - fields
    local first, second = charged[own + 1], charged[own + 2]
    if plan then cells, states, fits, need, spare = spread(plan[rule]) end
    if charge and fits then
      if cells == 1 and first then
        call('HSET', key, ARGV[cell + 1], first)
        answer = answer .. first
      elseif cells == 2 and first and second then
        call('HSET', key, ARGV[cell + 1], first, ARGV[cell + 2], second)
        answer = answer .. first .. second
      else
        local words, count = {}, 0
        for i = 1, cells do
          local state = charged[own + i]
          if state then states[i] = state end
          if state or changed and changed[cell + i] then
            words[count + 1], words[count + 2] = ARGV[cell + i], states[i]
            count = count + 2
          end
        end
        if count > 0 then call('HSET', key, spread(words)) else need = 0 end
        answer = answer .. table.concat(states)
      end
    else
      for i = 1, (changed or sure) and cells or 0 do
        local is_sure = sure and sure[cell + i]
        if is_sure then states[i] = charged[own + i] end
        if is_sure or changed and changed[cell + i] then call('HSET', key, ARGV[cell + i], states[i]) end
      end
      answer = answer .. table.concat(states)
    end
    if need > 0 and (charge and fits or changed or sure) then
      --@ keep.lua
    end
    if lacking then
      flags = flags .. (fits and '1' or '0')
      for i = cell + 1, cell + cells do flags = flags .. (lacking[i] and '0' or '1') end
    end
    cell = cell + cells
  end
  if held and charge then
    --@ hold.lua
  end
  return lacking and answer .. flags or answer
end

local answers, count, keys, fields = {}, 0, 0, 1
local size = #packed
while at <= size do
  local charge, rules, cells
  charge, rules, cells, at = unpack('<ddd', packed, at)
  local rest = at + 16 * rules + 56 * cells
  if KEYS == ARGV then keys, fields = fields, fields + rules end
  count = count + 1
  answers[count] = decide(keys, fields, at, charge > 0, rules, charge == 2 and rest, charge ~= 0)
  keys, fields, at = keys + rules, fields + cells, charge == 2 and rest + 8 + 32 * cells or rest
end
return count == 1 and answers[1] or table.concat(answers)

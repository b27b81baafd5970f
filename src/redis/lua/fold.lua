-- Gives back what holds of `key` had that are over. They can be settled for a while longer, as long as their window lasts and for
-- a day at most: until then they stay, with a negative time at which they are dropped. Makes `folded`: something was over. Or
-- `why` they cannot be read. If they are on another node, and the plan reserves nothing (not `held`), nothing is folded: a refusal
-- is safe.
local holds = key .. ':h'
local over = pcall('ZRANGEBYSCORE', holds, 1, now, 'LIMIT', 0, 500)
why, folded = over.err, over[1]
if why and not held and why:find('non local key', 1, true) then why = nil end
if folded then
  -- This comes first: a set that becomes empty is gone, and while its slot moves the next command for it would fail.
  call('ZREMRANGEBYSCORE', holds, -now, -1)
  --@ amend.lua
  local states = {}
  repeat
    for i = 1, #over do
      local member, drop = over[i], 0
      --@ read_hold.lua
      if kind < 8 then
        local state = amend(algorithm, states[field] or call('HGET', key, field), amount, 0, origin, max, per, off)
        states[field] = state or states[field]
      end
      if algorithm == 0 then
        drop = now + per
      elseif algorithm == 2 then
        drop = origin + 2 * per
      elseif algorithm ~= 4 then
        drop = origin + off
      end
      -- A hold of a slice that is not there was never entered, as settle.lua takes it: it has to stay for as long as its receipt
      -- is good, which is two days at most.
      local most = now + (off > 0 and 2 or 1) * 86400000000
      if drop > most then drop = most end
      if drop > now then call('ZADD', holds, -drop, member) else call('ZREM', holds, member) end
    end
    local all = #over < 500
    over = all or pcall('ZRANGEBYSCORE', holds, 1, now, 'LIMIT', 0, 500)
  until all
  for field, state in pairs(states) do call('HSET', key, field, state) end
end

-- Makes `text`: `why` the field of a key cannot be read or written. In a cluster, Redis serves a script the keys of this node only.
-- Of a slot that is moving, those that are here. Redis 8 has texts of its own for several keys of such a slot, and for a slot
-- without a node.
local name = (key .. ' ' .. field):gsub('%c', '?')
local text
if why:find('non local key', 1, true) or why:find('rehashing of the slot', 1, true) or why:find('slot not served', 1, true) then
  text = 'TRYAGAIN ' .. name .. ': the key is on another node, or its slot is moving to one'
elseif why:find('cluster is down', 1, true) then
  text = 'CLUSTERDOWN ' .. name .. ': ' .. why
else
  text = 'BADSTATE ' .. name .. ': ' .. why .. '; delete the key, or give weir a prefix of its own'
end

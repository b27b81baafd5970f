-- `why` the field of a key cannot be read, as a part of the answer.
do
  local name = (key .. ' ' .. field):gsub('%c', '?')
  local text = 'BADSTATE ' .. name .. ': ' .. why .. '; delete the key, or give weir a prefix of its own'
  return pack('<ddd', 4, now, #text) .. text
end

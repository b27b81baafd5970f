-- `why` the field of a key cannot be read, as a part of the answer.
do
  --@ reason.lua
  return pack('<ddd', 4, now, #text) .. text
end

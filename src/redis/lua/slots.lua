-- Slots in use, of value and key. If their holds are gone, so are they: somebody has deleted these, or the server has evicted
-- them. Or `why` it is damaged.
count = 0
if value then
  count = #value == 8 and unpack('<d', value) or -1
  if not (count >= 0 and count < 2 ^ 53) then
    why, count = 'this is not a count of slots', 0
  elseif count > 0 and call('EXISTS', key .. ':h') == 0 then
    count = 0
  end
end

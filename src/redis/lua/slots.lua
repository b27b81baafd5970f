-- Slots in use, of value and key. If their holds are gone, so are they: somebody has deleted these, or the server has evicted
-- them. Or `why` it is damaged. Both keys are asked for: while their slot moves, Redis says nothing of two unless both are here, and
-- so a set that has not arrived yet is not taken for one that is gone.
count = 0
if value then
  count = #value == 8 and unpack('<d', value) or -1
  if not (count >= 0 and count < 2 ^ 53) then
    why, count = 'this is not a count of slots', 0
  elseif count > 0 then
    local here = pcall('EXISTS', key, key .. ':h')
    if type(here) == 'table' then why = here.err elseif here < 2 then count = 0 end
  end
end

-- What comes back to a bucket in the time `elapsed`, in 1/2^20 token: `back`, rounded down, and the rest of that division.
-- If it is `most` or more for sure, that is all that is said.
local back, rest = most, 0
if elapsed / per * (max * 2 ^ 20) <= most * 1.000001 + 1 then
  --@ muldiv.lua
  local begun = elapsed % per
  back, rest = muldiv(begun, max * 2 ^ 20, per)
  back = back + (elapsed - begun) / per * (max * 2 ^ 20)
end

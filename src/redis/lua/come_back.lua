-- Takes off the tokens and parts of a bucket what comes back in the time `elapsed`, rounded down to 1/2^20 token. `rest` is the
-- part that the rounding left out. If everything comes back for sure, nothing has to be computed.
rest = 0
if elapsed / per * max > tokens * 1.000001 + 2 then
  tokens, parts = 0, 0
else
  --@ muldiv.lua
  local begun, back = elapsed % per
  tokens = tokens - (elapsed - begun) / per * max
  back, rest = muldiv(begun, max, per)
  tokens = tokens - back
  back, rest = muldiv(rest, 2 ^ 20, per)
  parts = parts - back
  if parts < 0 then tokens, parts = tokens - 1, parts + 2 ^ 20 end
  if tokens < 0 then tokens, parts = 0, 0 end
end

-- The parts of a hold, see name_hold.lua. A kind of 8 or more: it is kept when it is over.
local kind, _, _, origin, amount, max, per, at = unpack('<BI4Hdddd', member)
local algorithm, field = kind % 8, member:sub(at)
local off = (algorithm == 1 or algorithm == 3) and per or 0

-- The parts of a hold, see hold.lua. A kind of 8 or more: it is kept when it is over.
local kind, _, _, origin, amount, max, per, at = unpack('<BI4Hdddd', member)
local algorithm, field = kind % 8, member:sub(at)

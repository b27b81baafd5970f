-- Names a hold as `member`: all that it takes to give it back. Only a bucket's max and the period of a bucket or sliding window
-- matter for that; of another window, by how much its end may be off.
if algorithm ~= 0 then max = 0 end
if algorithm ~= 0 and algorithm ~= 2 then per = off end
member = pack('<BI4Hdddd', algorithm + (kind == 2 and 8 or 0), id, nth, origin, amount, max, per) .. field

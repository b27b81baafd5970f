local unpack, pack, call, pcall, spread = struct.unpack, struct.pack, redis.call, redis.pcall, unpack
local KEYS, ARGV = KEYS, ARGV
local packed = ARGV[1]

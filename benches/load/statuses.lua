-- Counts the answers whose status is not the one given as argument.
local threads = {}

function setup(thread)
    table.insert(threads, thread)
end

function init(arguments)
    expected = tonumber(arguments[1])
    other = 0
end

function response(status)
    if status ~= expected then
        other = other + 1
    end
end

function done()
    local sum = 0
    for _, thread in ipairs(threads) do
        sum = sum + thread:get("other")
    end
    io.write("other statuses: " .. sum .. "\n")
end

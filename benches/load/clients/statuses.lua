-- As report.lua, and counts the answers by status, which costs the client something for each.
local threads = {}

function setup(thread)
    table.insert(threads, thread)
end

function init(arguments)
    seen = {}
    local size = tonumber(arguments[1])
    if size then
        wrk.method = "POST"
        wrk.body = string.rep("x", size)
    end
end

function response(status)
    seen[status] = (seen[status] or 0) + 1
end

function done(summary, latency)
    local parts = {}
    for _, thread in ipairs(threads) do
        for code, count in pairs(thread:get("seen")) do
            table.insert(parts, string.format("%d:%d", code, count))
        end
    end
    local errors = summary.errors
    io.write(string.format(
        '{"requests":%d,"bytes":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,' ..
        '"connect":%d,"read":%d,"write":%d,"timeout":%d,"status":%d,"statuses":"%s"}\n',
        summary.requests, summary.bytes, summary.duration, latency:percentile(50), latency:percentile(99),
        errors.connect, errors.read, errors.write, errors.timeout, errors.status, table.concat(parts, ",")))
end

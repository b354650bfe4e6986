-- Prints wrk's figures as one line of JSON; costs nothing per request. Argument: the size of a body to send, or none.
function init(arguments)
    local size = tonumber(arguments[1])
    if size then
        wrk.method = "POST"
        wrk.body = string.rep("x", size)
    end
end

function done(summary, latency)
    local errors = summary.errors
    io.write(string.format(
        '{"requests":%d,"bytes":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,' ..
        '"connect":%d,"read":%d,"write":%d,"timeout":%d,"status":%d}\n',
        summary.requests, summary.bytes, summary.duration, latency:percentile(50), latency:percentile(99),
        errors.connect, errors.read, errors.write, errors.timeout, errors.status))
end

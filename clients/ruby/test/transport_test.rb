# frozen_string_literal: true

require_relative "helper"
require "socket"
require "stringio"
require "zlib"

# Kickstand::Transport against servers of this process, which behave well or badly.
class TransportTest < Minitest::Test
  def teardown
    @server&.close
    @threads&.each(&:kill)
  end

  def test_reuses_a_connection
    connections = 0
    client = serve(on_connect: -> { connections += 1 }) { |socket| answer(socket, JSON.generate(now: "2026-11-21T09:00:00Z")) }
    3.times { client.sandbox.get_clock }
    assert_equal 1, connections
    client.close
    client.sandbox.get_clock
    assert_equal 2, connections
  end

  def test_reuses_a_connection_after_a_problem
    connections = 0
    client = serve(on_connect: -> { connections += 1 }) { |socket| answer(socket, '{"code":"not_found","detail":"None."}', status: 404) }
    2.times { assert_raises(Kickstand::Problem) { client.vehicles.get("x") } }
    assert_equal 1, connections
  end

  def test_many_threads_share_a_client
    client = serve do |socket, request|
      answer(socket, JSON.generate(id: request[%r{/vehicles/(\S+)}, 1]))
    end
    got = Array.new(50) { |i| Thread.new { Array.new(4) { |n| client.vehicles.get("v#{i}-#{n}").id } } }.map(&:value)
    assert_equal(Array.new(50) { |i| Array.new(4) { |n| "v#{i}-#{n}" } }, got)
  end

  def test_limits_the_time_of_an_attempt
    [
      ->(_socket) { wait },                                                                 # no answer
      ->(socket) { trickle(socket, "HTTP/1.1 200 OK\r\nX-Slow: #{"x" * 10_000}") },         # slow headers
      ->(socket) { trickle(socket, "HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n#{" " * 9999}") } # a slow body
    ].each do |behave|
      client = serve(timeout: 0.2, max_retries: 0) { |socket| behave.call(socket) }
      started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      error = assert_raises(Kickstand::TimeoutError) { client.sandbox.get_clock }
      assert_operator Process.clock_gettime(Process::CLOCK_MONOTONIC) - started, :<, 10 # they would take 100
      assert_match(/within 0\.2 seconds/, error.message)
    end
  end

  def test_limits_the_time_between_pieces_of_a_stream
    client = serve(timeout: 1) do |socket|
      socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n{\"id\":\"1\"}\n\r\n")
      wait
    end
    ids = []
    assert_raises(Kickstand::TimeoutError) { client.vehicles.export.each { |vehicle| ids << vehicle.id } }
    assert_equal ["1"], ids
  end

  def test_sends_each_attempt_once
    requests = 0
    client = serve(max_retries: 0) do |socket|
      requests += 1
      socket.close
    end
    assert_raises(Kickstand::ConnectionError) { client.sandbox.get_clock }
    assert_equal 1, requests
  end

  def test_notices_a_body_that_was_cut
    gzipped = Zlib.gzip(JSON.generate(now: "x" * 1000))
    {
      "Content-Length: 100" => '{"now":"2026-11-21T09:00:00Z"}',
      "Content-Length: 0100\r\nX-A: b" => "",
      "X-Cut: before the length" => "",
      "Transfer-Encoding: chunked" => "5\r\n{\"now",
      "Transfer-Encoding: chunked\r\nX-A: b" => "2\r\n{}\r\n",
      "Content-Encoding: gzip\r\nContent-Length: #{gzipped.bytesize}" => gzipped[0, 30],
      "Content-Encoding: gzip\r\nContent-Length: 30" => gzipped[0, 30]
    }.each do |header, body|
      client = serve(max_retries: 0) do |socket|
        socket.write("HTTP/1.1 200 OK\r\n#{header}\r\n\r\n".b << body)
        socket.close
      end
      assert_instance_of Kickstand::ConnectionError, assert_raises(Kickstand::Error, header) { client.sandbox.get_clock }
    end
  end

  def test_refuses_a_stream_that_could_end_unnoticed
    client = serve(max_retries: 0) do |socket|
      socket.write("HTTP/1.0 200 OK\r\n\r\n{\"id\":\"1\"}\n")
      socket.close
    end
    assert_match(/length/, assert_raises(Kickstand::ConnectionError) { client.vehicles.export.to_a }.message)
  end

  def test_does_not_retry_for_an_invalid_certificate
    connections = 0
    @server = TCPServer.new("127.0.0.1", 0)
    context = OpenSSL::SSL::SSLContext.new.tap { |ssl| ssl.cert, ssl.key = self_signed }
    @threads = [Thread.new do
      loop do
        socket = @server.accept
        connections += 1
        OpenSSL::SSL::SSLSocket.new(socket, context).accept
      rescue OpenSSL::SSL::SSLError
        socket.close
      rescue IOError
        break
      end
    end]
    client = Kickstand::Fleet.new(key: Clients::TEST, base_url: "https://127.0.0.1:#{@server.addr[1]}", sleep: ->(_) { flunk "it was retried" })
    assert_match(/certificate/, assert_raises(Kickstand::ConnectionError) { client.vehicles.get("x") }.message)
    assert_equal 1, connections
  end

  def test_decodes_gzip
    accepted = nil
    client = serve do |socket, request|
      accepted = request[/^Accept-Encoding: (.*)\r$/i, 1]
      body = Zlib.gzip(JSON.generate(id: "v1", code: "x" * 100_000))
      socket.write("HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Encoding: gzip\r\nContent-Length: #{body.bytesize}\r\n\r\n".b << body)
    end
    etag = nil
    vehicle = client.vehicles.get("v1", request_options: { on_response: ->(response) { etag = response.etag } })
    assert_equal ["gzip", '"v1"', 100_000], [accepted, etag, vehicle.code.size]
  end

  def test_decodes_a_stream
    client = serve do |socket|
      body = Zlib.gzip((1..2000).map { |i| "#{JSON.generate(id: i.to_s)}\n" }.join)
      socket.write("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n")
      body.scan(/.{1,50}/mn) { |piece| socket.write("#{piece.bytesize.to_s(16)}\r\n".b << piece << "\r\n") }
      socket.write("0\r\n\r\n")
    end
    assert_equal 2000, client.vehicles.export.count
  end

  def test_ends_a_stream_early
    closed = Queue.new
    client = serve do |socket|
      socket.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
      loop { socket.write("b\r\n{\"id\":\"1\"}\n\r\n") }
    rescue Errno::EPIPE, Errno::ECONNRESET
      closed << true
    end
    assert_equal %w[1 1 1], client.vehicles.export.first(3).map(&:id)
    assert_equal "1", client.vehicles.export.each.next.id
    assert closed.pop
  end

  def test_raises_the_errors_of_a_block_unchanged
    client = serve { |socket| answer(socket, "{\"id\":\"1\"}\n") }
    [Errno::ECONNRESET, IOError, Timeout::Error, Kickstand::ConnectionError, Zlib::BufError, StopIteration].each do |error|
      assert_instance_of error, assert_raises(error) { client.vehicles.export.each { raise error, "mine" } }
    end
  end

  def test_follows_no_redirect
    requests = []
    client = serve do |socket, request|
      requests << request
      socket.write("HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:#{@server.addr[1]}/else\r\nContent-Length: 0\r\n\r\n")
    end
    assert_equal 307, assert_raises(Kickstand::Problem) { client.sandbox.get_clock }.status
    assert_equal 1, requests.size
  end

  def test_sends_a_length_without_a_body
    got = nil
    client = serve do |socket, request|
      got = request
      socket.write("HTTP/1.1 204 No Content\r\n\r\n")
    end
    assert_nil client.sandbox.reset
    assert_match(/^Content-Length: 0\r$/, got)
  end

  def test_works_after_a_fork
    client = serve { |socket| answer(socket, JSON.generate(id: Process.pid.to_s)) }
    client.vehicles.get("a")
    reader, writer = IO.pipe
    pid = fork do
      writer.write(client.vehicles.get("b").id)
      exit!(0)
    end
    Process.wait(pid)
    writer.close
    assert_equal Process.pid.to_s, reader.read
    assert_equal Process.pid.to_s, client.vehicles.get("c").id
  end

  def test_uses_the_proxy_of_the_environment
    got = nil
    serve do |socket, request|
      got = request
      answer(socket, JSON.generate(id: "v1"))
    end
    with_environment("http_proxy" => "http://ada:p%40ss@127.0.0.1:#{@server.addr[1]}", "no_proxy" => "direct.example") do
      client = Kickstand::Fleet.new(key: Clients::TEST, base_url: "http://kickstand.example", allow_http: true, max_retries: 0)
      assert_equal "v1", client.vehicles.get("v1").id
    end
    assert_match(%r{\AGET http://kickstand\.example/sandbox/v1/vehicles/v1 }, got)
    assert_match(/^Proxy-Authorization: Basic #{["ada:p@ss"].pack("m0")}\r$/, got)
  end

  def test_refuses_an_unknown_certificate
    key = OpenSSL::PKey::EC.generate("prime256v1")
    certificate = OpenSSL::X509::Certificate.new
    certificate.subject = certificate.issuer = OpenSSL::X509::Name.parse("/CN=localhost")
    certificate.not_before = Time.now - 60
    certificate.not_after = Time.now + 60
    certificate.public_key = key
    certificate.sign(key, "SHA256")
    context = OpenSSL::SSL::SSLContext.new
    context.add_certificate(certificate, key)
    @server = OpenSSL::SSL::SSLServer.new(TCPServer.new("127.0.0.1", 0), context)
    @threads = [Thread.new { assert_raises(OpenSSL::SSL::SSLError) { @server.accept } }]
    client = Kickstand::Fleet.new(key: Clients::TEST, base_url: "https://localhost:#{@server.addr[1]}", max_retries: 0)
    assert_match(/certificate/, assert_raises(Kickstand::ConnectionError) { client.sandbox.get_clock }.message)
  end

  def test_names_the_server_in_errors
    port = TCPServer.open("127.0.0.1", 0) { |server| server.addr[1] }
    client = Kickstand::Fleet.new(key: Clients::TEST, base_url: "http://127.0.0.1:#{port}", max_retries: 0)
    error = assert_raises(Kickstand::ConnectionError) { client.sandbox.get_clock }
    assert error.message.start_with?("http://127.0.0.1:#{port}: ")
    refute_includes error.full_message, Clients::TEST
  end

  private

  # @return [Array(OpenSSL::X509::Certificate, OpenSSL::PKey)]
  def self_signed
    key = OpenSSL::PKey::EC.generate("prime256v1")
    certificate = OpenSSL::X509::Certificate.new
    certificate.subject = certificate.issuer = OpenSSL::X509::Name.parse("/CN=127.0.0.1")
    certificate.not_before = Time.now - 60
    certificate.not_after = Time.now + 3600
    certificate.public_key = key
    [certificate.sign(key, "SHA256"), key]
  end

  # Starts a server whose connections are answered by the block, request by request.
  # @return [Kickstand::Fleet]
  def serve(on_connect: nil, **options, &block)
    @server&.close
    server = @server = TCPServer.new("127.0.0.1", 0)
    (@threads ||= []) << Thread.new do
      loop do
        socket = server.accept
        on_connect&.call
        @threads << Thread.new { converse(socket, &block) }
      end
    rescue IOError
      nil # the end of the test
    end
    Kickstand::Fleet.new(key: Clients::TEST, base_url: "http://127.0.0.1:#{server.addr[1]}", **options)
  end

  def converse(socket)
    until socket.closed?
      request = socket.gets("\r\n\r\n") or break
      length = request[/^content-length: (\d+)/i, 1].to_i
      socket.read(length) if length.positive?
      yield socket, request
    end
  rescue SystemCallError, IOError
    nil # the client went away
  end

  def answer(socket, body, status: 200)
    socket.write("HTTP/1.1 #{status} OK\r\nContent-Length: #{body.bytesize}\r\n\r\n#{body}")
  end

  def wait = Thread.stop

  # Sends bytes one by one, more slowly than a test waits.
  def trickle(socket, text)
    text.each_char do |char|
      socket.write(char)
      IO.select([socket], nil, nil, 0.01)
    end
  end

  def with_environment(variables)
    before = variables.to_h { |name, _| [name, ENV.fetch(name, nil)] }
    ENV.update(variables)
    yield
  ensure
    ENV.update(before)
  end
end

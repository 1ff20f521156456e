# frozen_string_literal: true

require "net/http"
require "openssl"
require "timeout"
require "zlib"
require_relative "errors"

module Kickstand
  # Sends requests by net/http over persistent connections, by a proxy of the environment
  # (+https_proxy+, +http_proxy+, +no_proxy+). It can be used by many threads at once, and after
  # a fork.
  #
  # A transport of your own responds to +call+ with a {Transport::Request}. It yields the status, the headers
  # as a Hash with names in lower case, and an object whose +each+ yields the pieces of the body,
  # and returns the result of the block. It raises {ConnectionError} or {TimeoutError}, follows no
  # redirects and does not repeat requests.
  class Transport
    # One attempt of a request.
    class Request
      # @return [String] "GET", "POST", "PUT" or "DELETE"
      attr_reader :method_name
      # @return [URI::HTTP]
      attr_reader :uri
      # @return [Hash{String => String}] with the API key
      attr_reader :headers
      # @return [String, nil]
      attr_reader :body
      # @return [Numeric] the seconds of the attempt; of a stream, until its headers and then for each piece
      attr_reader :timeout

      def initialize(method_name, uri, headers:, body:, timeout:, stream:)
        @method_name = method_name
        @uri = uri
        @headers = headers
        @body = body
        @timeout = timeout
        @stream = stream
        freeze
      end

      # @return [Boolean] whether the answer is read while it arrives
      def stream? = @stream

      # @return [String] without headers and body, which may contain secrets
      def inspect = "#<#{self.class} #{method_name} #{uri}>"
    end

    # The errors of net/http and below.
    FAILURES = [
      Timeout::Error, SystemCallError, SocketError, IOError, OpenSSL::OpenSSLError, Zlib::Error,
      Net::ProtocolError, Net::HTTPBadResponse, Net::HTTPHeaderSyntaxError
    ].freeze
    IDLE_CONNECTIONS = 16
    IDLE_SECONDS = 30
    private_constant :FAILURES, :IDLE_CONNECTIONS, :IDLE_SECONDS

    def initialize
      @lock = Mutex.new
      @idle = Hash.new { |idle, origin| idle[origin] = [] }
      @pid = Process.pid
    end

    # @param request [Request]
    # @yieldparam status [Integer]
    # @yieldparam headers [Hash{String => String}]
    # @yieldparam body [#each]
    # @return [Object] the result of the block
    def call(request, &block)
      connection = take(request)
      reusable = false
      result = exchange(connection, request, &block)
      reusable = true
      result
    ensure
      release(connection, request, reusable) if connection
    end

    # @return [ConnectionError] for an error of net/http
    # @api private
    def self.translate(error, request)
      return TimeoutError.new("no answer from #{origin(request.uri)} within #{request.timeout} seconds") if error.is_a?(Timeout::Error)

      ConnectionError.new("#{origin(request.uri)}: #{error.message}")
    end

    # @return [String] "https://kickstand.example:443"
    # @api private
    def self.origin(uri) = "#{uri.scheme}://#{uri.host}:#{uri.port}"

    # Closes the idle connections.
    # @return [void]
    def close
      connections = @lock.synchronize do
        idle = @pid == Process.pid ? @idle.values.flatten : []
        @idle.clear
        idle
      end
      connections.each { |connection| finish(connection) }
    end

    # @return [String]
    def inspect = "#<#{self.class}>"

    private

    def exchange(connection, request)
      raised = nil # by the block, not by the connection
      limit(request) do
        send_message(connection, request) do |answer|
          yield answer.code.to_i, headers(answer), Body.new(answer, request)
        rescue StandardError => e
          raised = e
          raise
        end
      end
    rescue *FAILURES => e
      raise if e.equal?(raised)

      raise Transport.translate(e, request)
    end

    # Limits the time of a whole attempt. The caller of a stream reads it at its own speed.
    def limit(request, &block)
      request.stream? ? yield : Timeout.timeout(request.timeout, &block)
    end

    def send_message(connection, request)
      connection.open_timeout = connection.read_timeout = connection.write_timeout = request.timeout
      connection.start unless connection.started?
      result = nil
      connection.request(message(request)) { |answer| result = yield answer }
      result
    end

    def headers(answer) = answer.to_hash.transform_values { |values| values.join(", ") }

    def message(request)
      # With this header net/http leaves the decoding to Body, which notices a body that was cut.
      headers = { "Accept-Encoding" => "gzip", **request.headers }
      headers["Content-Length"] = "0" if request.body.nil? && request.method_name != "GET"
      message = Net::HTTPGenericRequest.new(request.method_name, !request.body.nil?, true, request.uri, headers)
      message.body = request.body
      message
    end

    # A forked process leaves the connections of its parent alone.
    def take(request)
      @lock.synchronize do
        if @pid != Process.pid
          @idle.clear
          @pid = Process.pid
        end
        @idle[origin(request)].pop
      end || connect(request.uri)
    end

    def release(connection, request, reusable)
      reusable &&= @lock.synchronize do
        idle = @idle[origin(request)]
        @pid == Process.pid && idle.size < IDLE_CONNECTIONS && idle.push(connection)
      end
      finish(connection) unless reusable
    end

    def finish(connection)
      connection.finish if connection.started?
    rescue *FAILURES
      nil # it is closed anyway
    end

    def connect(uri)
      proxy = uri.find_proxy
      address = proxy ? [proxy.hostname, proxy.port, *credentials(proxy)] : [nil]
      http = Net::HTTP.new(uri.hostname, uri.port, *address)
      http.use_ssl = uri.scheme == "https"
      http.min_version = OpenSSL::SSL::TLS1_2_VERSION
      http.keep_alive_timeout = IDLE_SECONDS
      http.max_retries = 0 # HTTP repeats requests
      http
    end

    def credentials(proxy)
      [proxy.user, proxy.password].compact.map { |text| text.gsub(/%\h\h/) { |escaped| escaped.delete_prefix("%").hex.chr } }
    end

    def origin(request) = Transport.origin(request.uri)

    # The pieces of a body, decoded.
    class Body
      def initialize(answer, request)
        @answer = answer
        @request = request
        @length = answer["content-length"]&.to_i unless answer.chunked?
        @gzip = answer["content-encoding"]&.downcase == "gzip"
      end

      # @yieldparam piece [String] bytes
      def each(&block)
        raised = nil # by the block, not by the connection
        read do |piece|
          block.call(piece)
        rescue StandardError => e
          raised = e
          raise
        end
      rescue *FAILURES => e
        raise if e.equal?(raised)

        raise Transport.translate(e, @request)
      end

      private

      def read(&block)
        raise EOFError, "the answer does not say its length" if @answer.is_a?(Net::HTTPSuccess) && !@answer.chunked? && @length.nil?

        inflate = Zlib::Inflate.new(16 + Zlib::MAX_WBITS) if @gzip
        count = 0
        @answer.read_body do |piece|
          count += piece.bytesize
          inflate ? inflate.inflate(piece, &block) : yield(piece)
        end
        # net/http does not notice it.
        raise EOFError, "the answer was cut short" if (@length && count < @length) || (inflate && count.positive? && !inflate.finished?)
      ensure
        inflate&.reset
        inflate&.close
      end
    end
    private_constant :Body
  end
end

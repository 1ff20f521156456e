# frozen_string_literal: true

require "securerandom"
require "uri"
require_relative "errors"
require_relative "request_options"
require_relative "response"
require_relative "retry_policy"
require_relative "transport"
require_relative "version"
require_relative "wire"

module Kickstand
  # Sends the requests of a client, repeats them where that is safe, and reads the answers.
  # @api private
  class HTTP
    USER_AGENT = "kickstand-ruby/#{VERSION}".freeze
    MAX_JSON = 64 << 20
    JSON_TYPE = "application/json"
    NDJSON_TYPE = "application/x-ndjson"
    private_constant :USER_AGENT, :MAX_JSON

    # @return [String] the address before the paths of the operations
    attr_reader :base

    def initialize(base, key, timeout:, max_retries:, max_retry_wait:, transport:, sleep:, random:, clock:)
      Limits.check(timeout:, max_retries:, max_retry_wait:)
      @base = base
      # A closure, so that no dump of this object contains the key.
      @authorization = -> { "Bearer #{key}" }
      @timeout = timeout
      @max_retries = max_retries
      @retries = RetryPolicy.new(max_wait: max_retry_wait, random:)
      @transport = transport
      @sleep = sleep
      @clock = clock
    end

    # Sends a request with an answer of JSON.
    # @return [Object, nil] the parsed answer; nil for 204 and 304
    def json(method, path, query: {}, body: nil, options: {})
      options = RequestOptions.from(options)
      body = JSON.generate(Wire.hash(body)) if body
      request = build(method, path, query:, body:, options:, accept: JSON_TYPE, type: JSON_TYPE)
      perform(request, options) do |response, pieces|
        read_json(response, pieces) unless [204, 304].include?(response.status)
      end
    end

    # Sends a request with an answer that is read while it arrives.
    # @param retry_if [Proc] whether a failed attempt may be repeated
    # @yieldparam response [Response]
    # @yieldparam pieces [#each]
    # @return [Object] the result of the block
    def stream(method, path, accept:, query: {}, body: nil, type: nil, options: {}, retry_if: -> { true }, &block)
      options = RequestOptions.from(options)
      raise ArgumentError, "if_none_match is not for exports and files" if options.if_none_match

      perform(build(method, path, query:, body:, options:, accept:, type:, stream: true), options, retry_if, &block)
    end

    # Closes the idle connections.
    def close
      @transport.close if @transport.respond_to?(:close)
    end

    # @return [String] without the key
    def inspect = "#<#{self.class} #{base}>"

    # @raise [TypeError]
    def marshal_dump
      raise TypeError, "a client cannot be marshalled: it has an API key"
    end

    private

    def build(method, path, query:, body:, options:, accept:, type:, stream: false)
      headers = { "Authorization" => @authorization.call, "User-Agent" => USER_AGENT, "Accept" => accept, **options.headers }
      headers["Content-Type"] = type if body
      headers["Idempotency-Key"] = options.idempotency_key || SecureRandom.uuid unless method == "GET"
      uri = URI.parse("#{base}#{path}#{Wire.query(query)}")
      Transport::Request.new(method, uri, headers:, body:, timeout: options.timeout || @timeout, stream:)
    end

    # Sends a request until an attempt succeeds or a further one would not help.
    def perform(request, options, retry_if = -> { true }, &block)
      limit = options.max_retries || @max_retries
      retries = 0
      response, outcome = attempt(request, options, &block)
      while outcome.is_a?(Error) && retries < limit && retry_if.call && (wait = @retries.wait(outcome, retries))
        @sleep.call(wait)
        retries += 1
        response, outcome = attempt(request, options, &block)
      end
      failed = outcome.is_a?(Error)
      options.on_response&.call(response) if response && (failed || !request.stream?)
      failed ? raise(outcome) : outcome
    end

    # @return [Array(Response, Object)] the answer, if there was one, and the block's result or an error
    def attempt(request, options)
      response = nil
      outcome = @transport.call(request) do |status, headers, pieces|
        response = Response.new(status, headers)
        next problem(response, pieces) unless response.success?

        options.on_response&.call(response) if request.stream?
        yield response, pieces
      end
      [response, outcome]
    rescue Problem, ConnectionError => e
      [(response unless e.is_a?(ConnectionError)), e]
    end

    def read(pieces)
      text = String.new
      pieces.each do |piece|
        text << piece.b
        raise Error, "the answer is larger than #{MAX_JSON >> 20} MiB" if text.bytesize > MAX_JSON
      end
      text.force_encoding(Encoding::UTF_8)
    end

    # @return [Hash, Problem]
    def read_json(response, pieces)
      value = Wire.parse(read(pieces))
      value.is_a?(Hash) ? value : unreadable(response, "The answer is not JSON.")
    rescue JSON::ParserError
      unreadable(response, "The answer is not JSON.")
    end

    def problem(response, pieces)
      document = Wire.parse(read(pieces))
      return unreadable(response) unless document.is_a?(Hash) && document["code"].is_a?(String)

      to_problem(response, document)
    rescue JSON::ParserError
      unreadable(response)
    end

    def unreadable(response, detail = "The server answered with status #{response.status}.")
      to_problem(response, { "detail" => detail }.freeze)
    end

    def to_problem(response, document)
      after = RetryPolicy.retry_after(response.headers["retry-after"], @clock.call)
      Problem.new(document, status: response.status, request_id: response.request_id, retry_after: after)
    end
  end
end

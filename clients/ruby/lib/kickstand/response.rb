# frozen_string_literal: true

module Kickstand
  # The rate limit of an API key after an answer.
  class RateLimit
    # @return [Integer] requests in a minute
    attr_reader :limit
    # @return [Integer] requests that are left in this minute
    attr_reader :remaining
    # @return [Time] the end of this minute
    attr_reader :reset

    def initialize(limit:, remaining:, reset:)
      @limit = limit
      @remaining = remaining
      @reset = reset
      freeze
    end

    # @return [Hash{Symbol => Object}]
    def to_h = { limit:, remaining:, reset: }
  end

  # Status and headers of an answer; see {RequestOptions#on_response}.
  class Response
    # @return [Integer]
    attr_reader :status
    # @return [Hash{String => String}] by name in lower case
    attr_reader :headers

    # @param status [Integer]
    # @param headers [Hash{String => String}] by name in lower case
    def initialize(status, headers)
      @status = status
      @headers = headers.dup.freeze
      freeze
    end

    # @return [String, nil] identifies this state of the record
    def etag = headers["etag"]

    # @return [String, nil] identifies the request in the server's log
    def request_id = headers["x-request-id"]

    # @return [Boolean] whether this is the answer of an earlier attempt with the same idempotency key
    def replayed? = headers["idempotent-replayed"] == "true"

    # @return [RateLimit, nil]
    def rate_limit
      values = %w[limit remaining reset].map { |name| Integer(headers["x-ratelimit-#{name}"], 10, exception: false) }
      return if values.any?(&:nil?)

      limit, remaining, reset = values
      RateLimit.new(limit:, remaining:, reset: Time.at(reset))
    end

    # @return [Boolean]
    # @api private
    def success? = status.between?(200, 299) || status == 304
  end
end

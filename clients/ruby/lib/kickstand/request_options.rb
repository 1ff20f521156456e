# frozen_string_literal: true

module Kickstand
  # Options of one call: the keyword +request_options+ of every method takes them as a Hash.
  #
  #   client.tickets.create(subject: "…", request_options: { idempotency_key: "order-1042", timeout: 5 })
  class RequestOptions
    # @return [String, nil] identifies a write; by default a random one for each call
    attr_reader :idempotency_key
    # @return [Numeric, nil] the seconds of one attempt
    attr_reader :timeout
    # @return [Integer, nil] the number of further attempts
    attr_reader :max_retries
    # @return [String, nil] an ETag: a write is refused (412) if the record has another
    attr_reader :if_match
    # @return [String, nil] an ETag: a read returns nil while the record has it
    attr_reader :if_none_match
    # @return [String, nil] the id of a subaccount of the fleet, to which the call is limited
    attr_reader :subaccount
    # @return [String, nil] the id of the request in the server's log: up to 64 of A-Za-z0-9._-
    attr_reader :request_id
    # @return [Proc, nil] called with the {Response} of the last attempt, before the method returns or raises
    attr_reader :on_response

    # @param options [RequestOptions, Hash{Symbol => Object}]
    # @return [RequestOptions]
    def self.from(options) = options.is_a?(RequestOptions) ? options : new(**options)

    def initialize(idempotency_key: nil, timeout: nil, max_retries: nil, if_match: nil, if_none_match: nil,
                   subaccount: nil, request_id: nil, on_response: nil)
      @idempotency_key = header(:idempotency_key, idempotency_key)
      @timeout = timeout
      @max_retries = max_retries
      @if_match = header(:if_match, if_match)
      @if_none_match = header(:if_none_match, if_none_match)
      @subaccount = header(:subaccount, subaccount)
      @request_id = header(:request_id, request_id)
      @on_response = on_response
      Limits.check(timeout:, max_retries:)
      freeze
    end

    # @return [Hash{Symbol => Object}]
    def to_h
      { idempotency_key:, timeout:, max_retries:, if_match:, if_none_match:, subaccount:, request_id:, on_response: }
    end

    # @param changes [Hash{Symbol => Object}]
    # @return [RequestOptions] a changed copy
    def with(**changes) = RequestOptions.new(**to_h, **changes)

    # @return [Hash{String => String}] the headers of the options, except for Idempotency-Key
    # @api private
    def headers
      { "If-Match" => if_match, "If-None-Match" => if_none_match, "X-Subaccount-Id" => subaccount, "X-Request-Id" => request_id }.compact
    end

    private

    def header(name, value)
      return if value.nil?
      return value if value.is_a?(String) && value.ascii_only? && value.match?(/\A[\x20-\x7E]+\z/)

      raise ArgumentError, "#{name} must be a String of visible ASCII characters"
    end
  end

  # Checks options that clients and calls have in common.
  # @api private
  module Limits
    module_function

    # @raise [ArgumentError]
    def check(timeout: nil, max_retries: nil, max_retry_wait: nil)
      raise ArgumentError, "timeout must be a number of seconds above 0" unless timeout.nil? || (count?(timeout, Numeric) && timeout != 0)
      raise ArgumentError, "max_retries must be an Integer of at least 0" unless max_retries.nil? || count?(max_retries, Integer)
      raise ArgumentError, "max_retry_wait must be a number of seconds" unless max_retry_wait.nil? || count?(max_retry_wait, Numeric)
    end

    def count?(value, type) = value.is_a?(type) && !value.negative?
  end
end

# frozen_string_literal: true

require "openssl"
require "time"
require_relative "errors"

module Kickstand
  # Decides which attempts are repeated, and after which wait.
  # @api private
  class RetryPolicy
    STATUSES = [408, 429, 500, 502, 503, 504].freeze
    FIRST_WAIT = 0.5
    LONGEST_WAIT = 8.0
    private_constant :STATUSES, :FIRST_WAIT, :LONGEST_WAIT

    # @param max_wait [Numeric] the longest Retry-After in seconds that is waited for
    # @param random [#call] returns a number from 0 up to 1
    def initialize(max_wait:, random:)
      @max_wait = max_wait
      @random = random
    end

    # @param error [Error] of the last attempt
    # @param retries [Integer] retries so far
    # @return [Numeric, nil] the seconds to wait before the next attempt; nil: it would not help
    def wait(error, retries)
      return unless retryable?(error)

      base = [LONGEST_WAIT, FIRST_WAIT * (2**[retries, 10].min)].min
      after = error.retry_after if error.is_a?(Problem)
      return (base / 2) + (@random.call * base / 2) if after.nil?
      return if after > @max_wait

      after + (@random.call * [1, base].min)
    end

    # @param value [String, nil] of the header Retry-After
    # @param now [Time]
    # @return [Numeric, nil] seconds
    def self.retry_after(value, now)
      return if value.nil?
      return value.to_i if value.match?(/\A\s*\d+\s*\z/)

      [Time.httpdate(value) - now, 0].max
    rescue ArgumentError
      nil
    end

    private

    def retryable?(error)
      case error
      when ConnectionError then !certificate?(error.cause)
      when Problem then STATUSES.include?(error.status) || (error.status == 409 && error.code == "idempotency_in_progress")
      else false
      end
    end

    # Another attempt would find the same certificate.
    def certificate?(cause) = cause.is_a?(OpenSSL::SSL::SSLError) && cause.message.include?("certificate verify failed")
  end
end

# frozen_string_literal: true

require_relative "record"

module Kickstand
  # The base of all errors of this library, except ArgumentError for arguments that are refused
  # before a request.
  class Error < StandardError; end

  # A request without a whole answer: no connection, a broken one, or an answer cut short. A write
  # may have been executed: repeat it with the same +idempotency_key+.
  class ConnectionError < Error; end

  # An attempt that took longer than its timeout.
  class TimeoutError < ConnectionError; end

  # A delivery of a webhook that is not authentic, or too old.
  class SignatureError < Error
    # @return [Symbol] +:unsigned+ (a header is missing), +:signature+ (it does not match) or
    #   +:timestamp+ (outside of the tolerance)
    attr_reader :reason

    # @param message [String]
    # @param reason [Symbol]
    def initialize(message, reason)
      super(message)
      @reason = reason
    end
  end

  # An error of one member, parameter or header of a request.
  class FieldError < Record
    # @return [String] for example "required"
    member :code
    # @return [String] a sentence for people
    member :detail
    # @return [String, nil] a JSON pointer to the member, for example "#/subject"
    member :pointer
    # @return [String, nil] the name of a query parameter
    member :parameter
    # @return [String, nil] the name of a header
    member :header
  end

  # An error that the server answered, as a problem document (RFC 9457). {Codes} lists the codes.
  #
  #   rescue Kickstand::Problem => e
  #     raise unless e.code == Kickstand::Codes::NOT_FOUND
  class Problem < Error
    # The members that every problem has, or may have.
    MEMBERS = %w[type title status detail instance code request_id errors].freeze
    private_constant :MEMBERS

    # @return [Integer] the HTTP status
    attr_reader :status
    # @return [String] for programs, for example "not_found"; empty if the answer was no problem document
    attr_reader :code
    # @return [String] the same for all problems of a code
    attr_reader :title
    # @return [String] a sentence for people
    attr_reader :detail
    # @return [String] the address of a page about the code
    attr_reader :type
    # @return [String] identifies the request in the server's log; empty if unknown
    attr_reader :request_id
    # @return [Array<FieldError>] all invalid fields
    attr_reader :errors
    # @return [Float, Integer, nil] the seconds to wait before the next attempt, if the server named them
    attr_reader :retry_after
    # @return [Hash{String => Object}] the whole document, frozen
    attr_reader :raw

    # @param raw [Hash{String => Object}] the document
    # @param status [Integer]
    # @param request_id [String, nil] of the answer's header
    # @param retry_after [Float, Integer, nil]
    # @api private
    def initialize(raw, status:, request_id: nil, retry_after: nil)
      @raw = raw
      @status = status
      @code, @title, @type = %w[code title type].map { |name| text(name) }
      @detail = text("detail")
      @request_id = text("request_id", request_id.to_s)
      @retry_after = retry_after
      @errors = Array(raw["errors"]).grep(Hash).map { |error| FieldError.new(error) }.freeze
      super(message_text)
    end

    # @return [Hash{String => Object}] the members that only problems of this code have, such as
    #   "required" of permission_denied
    def members = @raw.except(*MEMBERS)

    # @param _names [Array<Symbol>, nil]
    # @return [Hash{Symbol => Object}] for pattern matching
    def deconstruct_keys(_names)
      { status:, code:, title:, detail:, type:, request_id:, errors:, retry_after:, members: }
    end

    private

    def text(name, default = "")
      value = @raw[name]
      value.is_a?(String) ? value : default
    end

    def message_text
      known = [(@code unless @code.empty?), ("request #{@request_id}" unless @request_id.empty?)].compact
      known.empty? ? @detail : "#{@detail} (#{known.join(", ")})"
    end
  end
end

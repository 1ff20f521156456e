# frozen_string_literal: true

require "json"
require_relative "http"
require_relative "import"
require_relative "page"
require_relative "stream"

module Kickstand
  # The operations on one kind of record. Every method takes {RequestOptions} as +request_options+.
  class Resource
    # @api private
    def initialize(http)
      @http = http
    end

    # @return [String]
    def inspect = "#<#{self.class}>"

    private

    # @return [Record, nil]
    def call(method, path, record = nil, query: {}, body: nil, options: {})
      raw = @http.json(method, path, query:, body:, options:)
      raw && record ? record.new(raw) : nil
    end

    def list_page(path, record, query:, limit:, cursor:, options:)
      raw = @http.json("GET", path, query: { **query, "limit" => limit, "cursor" => cursor }, options:)
      Page.new(raw, record, cursor) { |following| list_page(path, record, query:, limit:, cursor: following, options:) }
    end

    def segment(value) = Wire.segment(value)

    def export_records(path, record, query:, options:)
      Export.new(record) { |retry_if, &block| @http.stream("GET", path, accept: HTTP::NDJSON_TYPE, query:, options:, retry_if:, &block) }
    end

    def download(path, accept, options:, query: {})
      Download.new { |retry_if, &block| @http.stream("GET", path, accept:, query:, options:, retry_if:, &block) }
    end

    def import_records(path, records, query:, options:, &block)
      lines = records.map { |record| "#{JSON.generate(Wire.encode(record))}\n" }
      import_text(path, lines.join, HTTP::NDJSON_TYPE, query:, options:, &block)
    end

    # An import is not repeated by itself: its lines may have been yielded already.
    def import_text(path, body, type, query:, options:)
      lines = []
      once = { retry_if: -> { false } }
      summary = @http.stream("POST", path, accept: HTTP::NDJSON_TYPE, query:, body:, type:, options:, **once) do |_response, pieces|
        read_import(pieces) do |line|
          lines << line
          yield line if block_given?
        end
      end
      ImportResult.new(lines, summary)
    end

    # @return [ImportSummary]
    def read_import(pieces)
      summary = nil
      Lines.new(pieces).each do |value|
        if value.key?("summary")
          summary = ImportSummary.new(value["summary"])
        else
          yield ImportLine.new(value)
        end
      end
      summary or raise ConnectionError, "the answer was cut short: the summary is missing"
    end
  end

  # Changes of a record that nobody else has changed meanwhile.
  module Modifiable
    ATTEMPTS = 5
    private_constant :ATTEMPTS

    # Reads a record, and updates it if nobody has changed it since; otherwise starts again, up to
    # five times.
    #
    #   client.tickets.modify(id) { |ticket| { tags: ticket.tags | ["lock"] } }
    #
    # @param id [Array<String>] as of +get+
    # @param request_options [RequestOptions, Hash] of each request
    # @yieldparam record [Record] the current record
    # @yieldreturn [Hash{Symbol => Object}, nil] the changes, as of +update+; nil: none
    # @return [Record] the updated record, or without changes the current one
    # @raise [Problem] 412 after the last attempt
    def modify(*id, request_options: {})
      options = RequestOptions.from(request_options)
      raise ArgumentError, "modify sets idempotency_key, if_match and if_none_match itself" if
        options.idempotency_key || options.if_match || options.if_none_match

      1.step do |attempt|
        record, etag = get_with_etag(id, options)
        changes = yield record
        return record if changes.nil?

        begin
          return update(*id, **changes, request_options: options.with(if_match: etag))
        rescue Problem => e
          raise if e.status != 412 || attempt == ATTEMPTS
        end
      end
    end

    private

    def get_with_etag(id, options)
      etag = nil
      observe = lambda do |response|
        etag = response.etag
        options.on_response&.call(response)
      end
      record = get(*id, request_options: options.with(on_response: observe))
      raise Error, "the record has no ETag, so a change could overwrite others" if etag.nil?

      [record, etag]
    end
  end
end

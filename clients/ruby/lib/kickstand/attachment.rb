# frozen_string_literal: true

module Kickstand
  # A file of a message that is sent.
  #
  #   client.messages.create(id, kind: "reply", text: "As discussed.",
  #                              attachments: [Kickstand::Attachment.read("receipt.pdf", content_type: "application/pdf")])
  class Attachment
    # @return [String]
    attr_reader :name
    # @return [String] the bytes
    attr_reader :content
    # @return [String]
    attr_reader :content_type

    # @param path [String, Pathname]
    # @param name [String] as the reader sees it
    # @param content_type [String]
    # @return [Attachment] the file of the path
    def self.read(path, name: File.basename(path), content_type: "application/octet-stream")
      new(File.binread(path), name:, content_type:)
    end

    # @param content [String] the bytes
    # @param name [String] as the reader sees it
    # @param content_type [String]
    def initialize(content, name:, content_type: "application/octet-stream")
      @content = content.b.freeze
      @name = name
      @content_type = content_type
      freeze
    end

    # @return [Hash{Symbol => String}] as it is sent, with the content in base64
    def to_h = { name:, content_type:, content: [content].pack("m0") }

    # @return [String]
    def inspect = "#<#{self.class} name=#{name.inspect}, content_type=#{content_type.inspect}, #{content.bytesize} bytes>"
  end
end

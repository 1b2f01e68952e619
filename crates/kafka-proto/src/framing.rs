//! Headers around messages: requests and responses with their length in front, stored records with their version.

use crate::messages::{RequestHeader, ResponseHeader};
use crate::{ApiKey, DecodeError, EncodeError, Frame, Message, Reader, Request, Writer};
use bytes::Bytes;

/// Reads a request's header from a frame (without its length prefix). The header's version follows from the API key
/// and version that stand first, so a version that is not served still has a readable header. Decode the body with
/// the reader that is left.
///
/// # Errors
/// [`DecodeError::UnknownApiKey`], or bytes that are no header: nothing can be answered then.
pub fn decode_request_header(frame: Bytes) -> Result<(RequestHeader, Reader), DecodeError> {
    let mut reader = Reader::new(frame);
    let mut peek = reader.clone();
    let (key, version) = (peek.i16()?, peek.i16()?);
    let api = ApiKey::from_i16(key).ok_or(DecodeError::UnknownApiKey(key))?;
    let header = RequestHeader::decode(&mut reader, api.request_header_version(version))?;
    Ok((header, reader))
}

/// Reads a response's header; the body is left in the reader.
///
/// # Errors
/// Bytes that are no header.
pub fn decode_response_header(
    frame: Bytes,
    api: ApiKey,
    version: i16,
) -> Result<(ResponseHeader, Reader), DecodeError> {
    let mut reader = Reader::new(frame);
    let header = ResponseHeader::decode(&mut reader, api.response_header_version(version))?;
    Ok((header, reader))
}

/// A response as it goes to the socket: length, header, body.
///
/// # Errors
/// A body that the version cannot carry.
pub fn encode_response(
    correlation_id: i32,
    api: ApiKey,
    version: i16,
    body: &impl Message,
) -> Result<Frame, EncodeError> {
    let mut writer = Writer::framed();
    let header = ResponseHeader {
        correlation_id,
        ..ResponseHeader::default()
    };
    header.encode(&mut writer, api.response_header_version(version))?;
    body.encode(&mut writer, version)?;
    writer.finish_framed()
}

/// A request as it goes to the socket: length, header, body.
///
/// # Errors
/// A body that the version cannot carry.
pub fn encode_request<R: Request>(
    correlation_id: i32,
    client_id: Option<&str>,
    version: i16,
    body: &R,
) -> Result<Frame, EncodeError> {
    let mut writer = Writer::framed();
    let header = RequestHeader {
        request_api_key: R::KEY.as_i16(),
        request_api_version: version,
        correlation_id,
        client_id: client_id.map(str::to_owned),
        ..RequestHeader::default()
    };
    header.encode(&mut writer, R::KEY.request_header_version(version))?;
    body.encode(&mut writer, version)?;
    writer.finish_framed()
}

/// A stored key or value (`__consumer_offsets`, `__transaction_state`) or embedded data (consumer protocol): its
/// version as an int16, then the message.
///
/// # Errors
/// A value that the version cannot carry.
pub fn encode_stored(version: i16, message: &impl Message) -> Result<Bytes, EncodeError> {
    let mut writer = Writer::new();
    writer.i16(version);
    message.encode(&mut writer, version)?;
    writer
        .finish()
        .into_bytes()
        .ok_or(EncodeError::RecordsInTaggedField)
}

/// The version of a stored message and the message.
///
/// # Errors
/// Bytes that are no such message, a version that the schema lacks.
pub fn decode_stored<M: Message>(bytes: Bytes) -> Result<(i16, M), DecodeError> {
    let mut reader = Reader::new(bytes);
    let version = reader.i16()?;
    Ok((version, M::decode(&mut reader, version)?))
}

import type { DescMethod } from '@bufbuild/protobuf'
import type { Json } from '../../client/json/fields.ts'
import { decodeJson } from '../../client/json/to-json.ts'
import type { Session } from '../../client/open-session.ts'
import type { CallOptions } from '../../rpc/ttrpc/client.ts'
import { callFailure } from '../clients.ts'

/** Returns the answer as JSON. Throws a failure that names the method and the code. */
export async function callMethod(
  session: Pick<Session, 'call'>,
  { name, output, parent }: DescMethod,
  payload: Uint8Array,
  options: CallOptions,
): Promise<Json> {
  try {
    return decodeJson(output, await session.call(parent.typeName, name, payload, options))
  } catch (error) {
    throw callFailure(name, error)
  }
}

import type { Server, ServerDuplexStream } from '@grpc/grpc-js'
import { neverAborted } from '../../base/abort.ts'
import { messageOf, StatusCode } from '../../base/errors.ts'
import { HealthDefinition } from '../../gen/grpc/health/v1/health.ts'
import {
  ServerReflectionDefinition,
  ServerReflectionRequest,
  ServerReflectionResponse,
} from '../../gen/grpc/reflection/v1/reflection.ts'
import { type CheckCall, type MethodTable, serviceNames } from '../method.ts'
import type { DescriptorIndex } from './descriptor-index.ts'

/** Reads the encoded `google.protobuf.FileDescriptorSet` of all services. */
export type ReadDescriptors = () => Promise<Uint8Array>

/** Both versions are in use; they differ in the package only. */
const SERVICE_NAMES = [ServerReflectionDefinition.fullName, 'grpc.reflection.v1alpha.ServerReflection']

type ReflectionCall = ServerDuplexStream<Buffer, Uint8Array>
type Answer = Pick<
  ServerReflectionResponse,
  'fileDescriptorResponse' | 'allExtensionNumbersResponse' | 'listServicesResponse' | 'errorResponse'
>

const METHOD = ServerReflectionDefinition.methods.serverReflectionInfo.name

export const REFLECTION_METHODS = SERVICE_NAMES.map((name) => `${name}/${METHOD}`)

/** The descriptors are read at the first call of a connection. */
export function registerReflection(
  server: Server,
  options: {
    readonly methods: MethodTable
    readonly readDescriptors: ReadDescriptors
    readonly checkCall: CheckCall
  },
): void {
  const { methods, readDescriptors, checkCall } = options
  const services = [...serviceNames(methods), HealthDefinition.fullName, ServerReflectionDefinition.fullName]
  let index: Promise<DescriptorIndex> | undefined
  const handler = (call: ReflectionCall) => {
    index ??= loadIndex(readDescriptors)
    answerAll(call, services, index, checkCall).catch((error) =>
      call.emit('error', { code: StatusCode.INTERNAL, details: `server reflection: ${messageOf(error)}` }),
    )
  }
  for (const name of REFLECTION_METHODS) {
    const encode = (response: Uint8Array) => Buffer.from(response)
    const decode = (request: Buffer) => request
    server.register(`/${name}`, handler, encode, decode, 'bidi')
  }
}

async function loadIndex(read: ReadDescriptors): Promise<DescriptorIndex> {
  const { indexDescriptors } = await import('./descriptor-index.ts')
  return indexDescriptors(await read())
}

async function answerAll(
  call: ReflectionCall,
  services: readonly string[],
  index: Promise<DescriptorIndex>,
  checkCall: CheckCall,
): Promise<void> {
  const loaded = await index
  for await (const question of call) {
    const request = ServerReflectionRequest.decode(question)
    const failure = await checkCall(`${ServerReflectionDefinition.fullName}/${METHOD}`, request, neverAborted)
    if (failure !== undefined) {
      call.emit('error', { code: StatusCode[failure.code], details: failure.message })
      return
    }
    const answer = {
      validHost: request.host,
      originalRequest: request,
      ...answerOf(request, services, loaded),
    }
    await sent(call, ServerReflectionResponse.encode(answer).finish())
  }
  call.end()
}

/** Resolves once the answer was sent or the call closed, so that a client that reads no answers can ask nothing more. */
function sent(call: ReflectionCall, answer: Uint8Array): Promise<void> {
  return new Promise((resolve) => {
    call.once('close', resolve)
    call.write(answer, () => {
      call.off('close', resolve)
      resolve()
    })
  })
}

function answerOf(
  request: ServerReflectionRequest,
  services: readonly string[],
  index: DescriptorIndex,
): Answer {
  if (request.listServices !== undefined) {
    return { listServicesResponse: { service: services.map((name) => ({ name })) } }
  }
  if (request.fileByFilename !== undefined)
    return filesOr(index.byName(request.fileByFilename), request.fileByFilename)
  const symbol = request.fileContainingSymbol
  if (symbol !== undefined) return filesOr(index.bySymbol(symbol), symbol)
  // The agent's messages have no extensions: proto3 allows them for custom options only.
  const extended = request.allExtensionNumbersOfType
  if (extended !== undefined && index.bySymbol(extended) !== undefined) {
    return { allExtensionNumbersResponse: { baseTypeName: extended, extensionNumber: [] } }
  }
  if (extended !== undefined) return notFound(extended)
  const extension = request.fileContainingExtension
  if (extension !== undefined)
    return notFound(`${extension.containingType} extension ${extension.extensionNumber}`)
  return {
    errorResponse: { errorCode: StatusCode.INVALID_ARGUMENT, errorMessage: 'message_request: not set' },
  }
}

function filesOr(files: readonly Uint8Array[] | undefined, name: string): Answer {
  return files === undefined
    ? notFound(name)
    : { fileDescriptorResponse: { fileDescriptorProto: [...files] } }
}

function notFound(name: string): Answer {
  return { errorResponse: { errorCode: StatusCode.NOT_FOUND, errorMessage: `${name}: not found` } }
}

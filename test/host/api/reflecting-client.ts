import {
  createFileRegistry,
  type DescMethod,
  type FileRegistry,
  fromBinary,
  fromJson,
  type JsonObject,
  toBinary,
  toJson,
} from '@bufbuild/protobuf'
import { type FileDescriptorProto, FileDescriptorProtoSchema } from '@bufbuild/protobuf/wkt'
import { Client, credentials, Metadata, type ServiceError } from '@grpc/grpc-js'
import {
  ServerReflectionDefinition,
  ServerReflectionRequest,
  ServerReflectionResponse,
} from '../../../src/gen/grpc/reflection/v1/reflection.ts'

/** Calls methods with JSON by server reflection alone, as `grpcurl` does, which Debian lacks. */
export class ReflectingClient {
  readonly #client: Client
  readonly #metadata = new Metadata()
  readonly #registries = new Map<string, FileRegistry>()

  /** `metadata` goes with each call. */
  constructor(path: string, metadata: Readonly<Record<string, string>> = {}) {
    for (const [key, value] of Object.entries(metadata)) this.#metadata.set(key, value)
    this.#client = new Client(`unix:${path}`, credentials.createInsecure(), {
      'grpc.max_receive_message_length': -1,
    })
  }

  async methods(service: string): Promise<readonly DescMethod[]> {
    const known = this.#registries.get(service)
    if (known !== undefined) return known.getService(service)?.methods ?? []
    const files = await this.#files(service)
    const own = files.find((file) => file.service.some(({ name }) => service === `${file.package}.${name}`))
    if (own === undefined) return []
    const registry = createFileRegistry(own, (name) => files.find((file) => file.name === name))
    this.#registries.set(service, registry)
    return registry.getService(service)?.methods ?? []
  }

  /** `grpcurl -d REQUEST … SERVICE/METHOD`: all answers. A stream is cancelled after the first answer. */
  async call(service: string, name: string, request: JsonObject = {}): Promise<readonly JsonObject[]> {
    const method = (await this.methods(service)).find((each) => each.name === name)
    if (method === undefined) throw new Error(`${service}/${name}: reflection does not tell of it`)
    const { input, output } = method
    const call = this.#client.makeServerStreamRequest(
      `/${service}/${name}`,
      (message: JsonObject) => Buffer.from(toBinary(input, fromJson(input, message))),
      (bytes: Buffer) => toJson(output, fromBinary(output, bytes)) as JsonObject,
      request,
      this.#metadata,
    )
    const answers: JsonObject[] = []
    return new Promise((resolve, reject) => {
      call.on('data', (answer: JsonObject) => {
        answers.push(answer)
        if (method.methodKind !== 'unary') call.cancel()
      })
      call.on('end', () => resolve(answers))
      call.on('error', (error: ServiceError) => (answers.length > 0 ? resolve(answers) : reject(error)))
    })
  }

  close(): void {
    this.#client.close()
  }

  #files(symbol: string): Promise<FileDescriptorProto[]> {
    const { fullName, methods } = ServerReflectionDefinition
    const call = this.#client.makeBidiStreamRequest(
      `/${fullName}/${methods.serverReflectionInfo.name}`,
      (request: ServerReflectionRequest) => Buffer.from(ServerReflectionRequest.encode(request).finish()),
      (bytes: Buffer) => ServerReflectionResponse.decode(bytes),
    )
    return new Promise((resolve, reject) => {
      call.on('data', ({ fileDescriptorResponse }: ServerReflectionResponse) => {
        const files = fileDescriptorResponse?.fileDescriptorProto ?? []
        resolve(files.map((bytes) => fromBinary(FileDescriptorProtoSchema, bytes)))
        call.end()
      })
      call.on('error', reject)
      call.write(ServerReflectionRequest.fromPartial({ fileContainingSymbol: symbol }))
    })
  }
}

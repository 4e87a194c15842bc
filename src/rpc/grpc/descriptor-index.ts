import {
  createFileRegistry,
  type DescEnum,
  type DescFile,
  type DescMessage,
  fromBinary,
  toBinary,
} from '@bufbuild/protobuf'
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'

/** Finds files, as encoded `google.protobuf.FileDescriptorProto` messages. */
export interface DescriptorIndex {
  /** The file of this name (with `.proto`), then all files that it imports, directly or not. */
  byName(name: string): readonly Uint8Array[] | undefined
  /** The same for the file that declares the service, method, message, field, enum or enum value `fullName`. */
  bySymbol(fullName: string): readonly Uint8Array[] | undefined
}

/** Throws for bytes that are no encoded `google.protobuf.FileDescriptorSet`. */
export function indexDescriptors(encodedSet: Uint8Array): DescriptorIndex {
  const names = new Map<string, DescFile>()
  const symbols = new Map<string, DescFile>()
  for (const file of createFileRegistry(fromBinary(FileDescriptorSetSchema, encodedSet)).files) {
    names.set(file.proto.name, file)
    for (const symbol of symbolsOf(file)) symbols.set(symbol, file)
  }
  const answer = (file: DescFile | undefined) =>
    file && [...withImports(file)].map(({ proto }) => toBinary(FileDescriptorProtoSchema, proto))
  return {
    byName: (name) => answer(names.get(name)),
    bySymbol: (fullName) => answer(symbols.get(fullName)),
  }
}

function symbolsOf(file: DescFile): readonly string[] {
  return [
    ...file.services.flatMap((service) => [
      service.typeName,
      ...service.methods.map((method) => `${service.typeName}.${method.name}`),
    ]),
    ...file.messages.flatMap(symbolsOfMessage),
    ...file.enums.flatMap(symbolsOfEnum),
  ]
}

function symbolsOfMessage(message: DescMessage): readonly string[] {
  return [
    message.typeName,
    ...[...message.fields, ...message.oneofs].map((member) => `${message.typeName}.${member.name}`),
    ...message.nestedMessages.flatMap(symbolsOfMessage),
    ...message.nestedEnums.flatMap(symbolsOfEnum),
  ]
}

/** The full name of an enum value has the enum's scope, but not the enum's name (protobuf). */
function symbolsOfEnum(type: DescEnum): readonly string[] {
  const scope = type.typeName.slice(0, type.typeName.lastIndexOf('.') + 1)
  return [type.typeName, ...type.values.map((value) => `${scope}${value.name}`)]
}

function withImports(file: DescFile, found = new Set<DescFile>()): ReadonlySet<DescFile> {
  found.add(file)
  for (const imported of file.dependencies) if (!found.has(imported)) withImports(imported, found)
  return found
}

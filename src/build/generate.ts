import { execFileSync } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import {
  createFileRegistry,
  type DescField,
  type DescMessage,
  fromBinary,
  ScalarType,
} from '@bufbuild/protobuf'
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'
import { buildRoot, projectRoot } from './project.ts'

export const generatedRoot = join(projectRoot, 'src/gen')

const TS_PROTO_OPTIONS = [
  'env=both', // bytes are views (Uint8Array) of what was received, never copies in a Buffer
  'forceLong=bigint', // 64-bit fields reach 2^64-1
  'enumsAsLiterals=true', // erasable syntax
  'unrecognizedEnum=false',
  'outputServices=generic-definitions', // data only: no import of a gRPC library
  'outputJsonMethods=false',
  'useExactTypes=false',
  'esModuleInterop=true',
  'importSuffix=.ts',
  'annotateFilesWithVersion=false',
]

/** Generates everything that derives from `proto/` into the empty folder `target`. Needs no network. */
export function generate(target: string): void {
  const descriptors = join(target, 'descriptors.binpb')
  buf(['build', 'proto', '--exclude-source-info', '--output', descriptors])
  writeFileSync(join(target, 'message-fields.ts'), messageFieldsSource(readFileSync(descriptors)))
  const template = {
    version: 'v2',
    plugins: [
      {
        local: [process.execPath, join(projectRoot, 'node_modules/ts-proto/protoc-gen-ts_proto')],
        out: target,
        opt: TS_PROTO_OPTIONS,
        include_imports: true,
        strategy: 'all',
      },
    ],
  }
  buf(['generate', 'proto', '--template', JSON.stringify(template)])
}

/** The source of `src/gen/message-fields.ts`: the request of each method, and the fields of all its messages. */
function messageFieldsSource(encodedSet: Uint8Array): string {
  const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, encodedSet))
  const services = [...registry.files].flatMap((file) => file.services)
  const requests: Record<string, string> = {}
  const messages = new Set<DescMessage>()
  for (const service of services) {
    for (const { name, input } of service.methods) {
      requests[`${service.typeName}/${name}`] = input.typeName
      addReachable(input, messages)
    }
  }
  const fields = [...messages].map((message) => [message.typeName, message.fields.map(rowOf)])
  return [
    '// Code generated from proto/. DO NOT EDIT.',
    'export interface MessageField {',
    '  readonly number: number',
    '  /** As the proto names it. */',
    '  readonly name: string',
    '  /** As the generated message names it. */',
    '  readonly property: string',
    '  /** Full name of the message that the field holds. */',
    '  readonly message?: string',
    '  readonly isMap?: true',
    '  /** Whether it holds several numbers, which a message may pack into one element. */',
    '  readonly isPacked?: true',
    '  /** The oneof that the field belongs to. */',
    '  readonly oneof?: string',
    '}',
    `export const REQUESTS: Readonly<Record<string, string>> = ${JSON.stringify(requests, undefined, 2)}`,
    'type Fields = Readonly<Record<string, readonly MessageField[]>>',
    'let fields: Fields | undefined',
    '/** By message. Made at the first use, because a start uses none. */',
    'export function messageFields(): Fields {',
    `  fields ??= ${JSON.stringify(Object.fromEntries(fields), undefined, 1)}`,
    '  return fields',
    '}',
    '',
  ].join('\n')
}

function addReachable(message: DescMessage, found: Set<DescMessage>): void {
  if (found.has(message)) return
  found.add(message)
  for (const field of message.fields) {
    if (field.message !== undefined) addReachable(field.message, found)
  }
}

function rowOf(field: DescField): object {
  return {
    number: field.number,
    name: field.name,
    property: field.jsonName,
    message: field.message?.typeName,
    isMap: field.fieldKind === 'map' || undefined,
    isPacked: isNumbers(field) || undefined,
    oneof: field.oneof?.name,
  }
}

function isNumbers(field: DescField): boolean {
  if (field.fieldKind !== 'list') return false
  const isText = field.scalar === ScalarType.STRING || field.scalar === ScalarType.BYTES
  return field.listKind === 'enum' || (field.listKind === 'scalar' && !isText)
}

function buf(args: readonly string[]): void {
  const program = join(projectRoot, 'node_modules/@bufbuild/buf/bin/buf')
  execFileSync(process.execPath, [program, ...args], { cwd: projectRoot, stdio: 'inherit' })
}

/** Replaces the whole folder, so that no file of a removed message remains. */
export function regenerate(): void {
  mkdirSync(buildRoot, { recursive: true })
  const fresh = mkdtempSync(join(buildRoot, 'gen-'))
  try {
    generate(fresh)
    // Of mkdtemp(3) it has mode 0700, with which only this user could run the tools.
    chmodSync(fresh, 0o755)
    const previous = `${fresh}.previous`
    if (existsSync(generatedRoot)) renameSync(generatedRoot, previous)
    renameSync(fresh, generatedRoot)
    rmSync(previous, { recursive: true, force: true })
  } finally {
    rmSync(fresh, { recursive: true, force: true })
  }
}

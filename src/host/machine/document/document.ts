import { refuse } from '../../spec/component-path.ts'
import { checkMachine } from '../check-machine.ts'
import { type Domain, domainShape } from '../domain/domain-shape.ts'
import { featuresShape } from '../features/table.ts'
import { API_VERSION, type Machine, machineShape } from '../machine.ts'
import { parseYaml } from './parse-yaml.ts'
import { isObject, object, oneOf, optional, type Read, record, type Shape, text } from './shape.ts'
import { DEFINITIONS, label } from './words.ts'

/** What a tenant or an administrator wishes, read and in its long form. */
export interface Document {
  readonly name: string | undefined
  readonly labels: Readonly<Record<string, string>>
  /** The path of the part that has `features` and `domain`. */
  readonly at: string
  readonly features: Readonly<Record<string, unknown>>
  readonly domain: Domain | undefined
  readonly stability: Stability
}

/** Whether the machine of the first expansion stays, or each cold boot makes another with the defaults of its day. */
export type Stability = 'fixed' | 'latest'

const apiVersion = optional(oneOf([API_VERSION, 'kubevirt.io/v1alpha1']))
const nothing: Shape<undefined> = {
  read: (value, at) => (value === null ? undefined : refuse(at, 'want nothing')),
  schema: { type: 'null' },
  isOptional: true,
}
const metadata = object({ name: optional(label), labels: optional(record(text(/^[^\0]{0,256}$/, 'a text'))) })
const metadataOrNothing: Shape<Read<typeof metadata> | undefined> = {
  read: (value, at) => (value === null ? nothing.read(value, at) : metadata.read(value, at)),
  schema: { anyOf: [nothing.schema, metadata.schema] },
  isOptional: true,
}
const wholeSpec = object({
  ...{ features: optional(featuresShape), domain: optional(domainShape) },
  stability: optional(oneOf(['fixed', 'latest'])),
})
const spec = { ...wholeSpec, schema: { $ref: '#/definitions/spec' } }

const machineDocument = object({ apiVersion, kind: oneOf(['VM']), metadata: metadataOrNothing, spec })
const templateDocument = object({
  ...{ apiVersion, kind: oneOf(['VirtualMachineConfig']), metadata: metadataOrNothing },
  spec: object({ template: object({ metadata: metadataOrNothing, spec }) }),
})

/** The JSON Schema of documents, for editors. */
export const documentSchema = {
  $schema: 'http://json-schema.org/draft-07/schema#',
  title: 'A virtual machine by its features',
  anyOf: [machineDocument.schema, templateDocument.schema],
  definitions: { spec: wholeSpec.schema, ...DEFINITIONS },
}

/** The document of a text in YAML or JSON. Throws as {@link readDocument} does, also where the text is wrong. */
export function parseDocument(source: string): Document {
  return readDocument(parseYaml(source))
}

/** Reads a document. Throws INVALID_ARGUMENT that names the field by its path, and what is allowed. */
export function readDocument(value: unknown): Document {
  const kind = isObject(value) ? value.kind : undefined
  if (kind === 'VirtualMachineConfig') {
    const { metadata: own, spec: outer } = templateDocument.read(value, '')
    const { template } = outer
    const { name = own?.name, labels = own?.labels ?? {} } = template.metadata ?? {}
    return { ...partsOf(template.spec), name, labels, at: 'spec.template.spec' }
  }
  if (kind !== 'VM') refuseKind(value)
  const { metadata: own, spec: inner } = machineDocument.read(value, '')
  return { ...partsOf(inner), name: own?.name, labels: own?.labels ?? {}, at: 'spec' }
}

function partsOf({ domain, features = {}, stability = 'fixed' }: Read<typeof spec>) {
  return { domain, features, stability }
}

function refuseKind(value: unknown): never {
  const kinds = oneOf(['VM', 'VirtualMachineConfig', 'Machine'])
  if (!isObject(value)) return refuse('document', 'want an object with apiVersion, kind, metadata, spec')
  if (value.kind === undefined) return refuse('kind', 'missing, want VM or VirtualMachineConfig')
  const kind = kinds.read(value.kind, 'kind')
  return refuse('kind', `${kind}: want VM or VirtualMachineConfig`)
}

/** Reads a machine that was written down. Throws INVALID_ARGUMENT, also for a later form. */
export function readMachine(value: unknown): Machine {
  const machine = machineShape.read(value, '')
  checkMachine(machine)
  return machine
}

export function isMachine(value: unknown): boolean {
  return isObject(value) && value.kind === 'Machine'
}

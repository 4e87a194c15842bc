import { AgentError } from '../../base/errors.ts'
import type { Spec } from '../../gen/oci.ts'
import { isDeviceName, isKind } from './names.ts'

/** A CDI device that a container requests by name, or all devices of a kind. */
export interface RequestedDevice {
  /** `nvidia.com/gpu`. */
  readonly kind: string
  /** undefined for every device of the kind. */
  readonly name: string | undefined
}

const ANNOTATION = 'cdi.k8s.io/'
const VARIABLE = 'VISIBLE_CDI_DEVICES'
const NOTHING = ['', 'none', 'void']

/** The annotation of a container's type; the sandbox's own container gets no devices. */
const CONTAINER_TYPE = 'io.katacontainers.pkg.oci.container_type'

/**
 * The CDI devices that a spec requests, each once: by annotations `cdi.k8s.io/…`, and with
 * `readsVariable` by the variable VISIBLE_CDI_DEVICES. Throws INVALID_ARGUMENT naming a malformed annotation or variable.
 */
export function requestedCdiDevices(spec: Spec, readsVariable: boolean): readonly RequestedDevice[] {
  if (spec.Annotations[CONTAINER_TYPE] === 'pod_sandbox') return []
  const byAnnotation = Object.keys(spec.Annotations)
    .filter((key) => key.startsWith(ANNOTATION))
    .sort()
    .flatMap((key) => namedIn(key, spec.Annotations[key] ?? ''))
  const byVariable = readsVariable ? visibleIn(spec.Process?.Env ?? []) : []
  const asked = [...byAnnotation, ...byVariable]
  return [...new Map(asked.map((device) => [textOf(device), device])).values()]
}

/** `nvidia.com/gpu=0`, as it is written. */
export function textOf({ kind, name }: RequestedDevice): string {
  return `${kind}=${name ?? 'all'}`
}

/** `vendor/class=name,vendor/class=name`. */
function namedIn(annotation: string, value: string): readonly RequestedDevice[] {
  return value.split(',').map((text) => {
    const [kind = '', name = ''] = text.split('=', 2)
    const isPlain = text === `${kind}=${name}`
    if (isPlain && isKind(kind) && isDeviceName(name)) return { kind, name }
    throw invalid(`Annotations['${annotation}']: "${text}", want vendor/class=name`)
  })
}

/** `VISIBLE_CDI_DEVICES=vendor/class=0,1:vendor/class=all`; the last one counts. */
function visibleIn(environment: readonly string[]): readonly RequestedDevice[] {
  const value =
    environment.findLast((entry) => entry.startsWith(`${VARIABLE}=`))?.slice(VARIABLE.length + 1) ?? ''
  if (NOTHING.includes(value)) return []
  return value.split(':').flatMap((part): readonly RequestedDevice[] => {
    const [kind = '', list = ''] = part.split('=', 2)
    const names = list.split(',')
    if (part !== `${kind}=${list}` || !isKind(kind) || !names.every(isDeviceName)) {
      throw invalid(`process.env: ${VARIABLE}: "${part}", want vendor/class=name,name`)
    }
    if (!names.includes('all')) return names.map((name) => ({ kind, name }))
    if (names.length > 1) throw invalid(`process.env: ${VARIABLE}: "${part}" has both all and names`)
    return [{ kind, name: undefined }]
  })
}

function invalid(text: string): AgentError {
  return new AgentError('INVALID_ARGUMENT', text)
}

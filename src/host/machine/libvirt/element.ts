/** An element of XML. Attributes and children that are undefined are left out. */
export interface Element {
  readonly name: string
  readonly attributes: Readonly<Record<string, string | number | undefined>>
  readonly children: readonly (Element | string)[]
}

export function element(
  name: string,
  attributes: Element['attributes'] = {},
  ...children: readonly (Element | string | undefined)[]
): Element {
  return { name, attributes, children: children.filter((child) => child !== undefined) }
}

export function xmlText({ attributes, children, name }: Element, indent = ''): string {
  const words = Object.entries(attributes).flatMap(([key, value]) =>
    value === undefined ? [] : [` ${key}="${escaped(String(value))}"`],
  )
  const begin = `${indent}<${name}${words.join('')}`
  if (children.length === 0) return `${begin}/>\n`
  const [text] = children
  if (typeof text === 'string') return `${begin}>${escaped(text)}</${name}>\n`
  const inner = children.map((child) => (typeof child === 'string' ? child : xmlText(child, `${indent}  `)))
  return `${begin}>\n${inner.join('')}${indent}</${name}>\n`
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`)
}

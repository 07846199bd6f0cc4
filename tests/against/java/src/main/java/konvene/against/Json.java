package konvene.against;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Just enough JSON for one line at a time: maps, lists, strings, numbers (long or double), booleans, null. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    static Object read(String text) {
        Json json = new Json(text);
        Object value = json.value();
        json.space();
        if (json.at != text.length()) throw json.wrong("end of line");
        return value;
    }

    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    private Object value() {
        space();
        char c = peek();
        if (c == '{') return map();
        if (c == '[') return list();
        if (c == '"') return string();
        if (word("null")) return null;
        if (word("true")) return true;
        if (word("false")) return false;
        return number();
    }

    private Map<String, Object> map() {
        Map<String, Object> map = new LinkedHashMap<>();
        take('{');
        if (ends('}')) return map;
        do {
            space();
            String key = string();
            space();
            take(':');
            map.put(key, value());
        } while (more('}'));
        return map;
    }

    private List<Object> list() {
        List<Object> list = new ArrayList<>();
        take('[');
        if (ends(']')) return list;
        do {
            list.add(value());
        } while (more(']'));
        return list;
    }

    private String string() {
        StringBuilder out = new StringBuilder();
        take('"');
        for (char c = next(); c != '"'; c = next()) {
            out.append(c == '\\' ? escaped() : c);
        }
        return out.toString();
    }

    private char escaped() {
        char c = next();
        switch (c) {
            case 'n': return '\n';
            case 't': return '\t';
            case 'r': return '\r';
            case 'b': return '\b';
            case 'f': return '\f';
            case 'u':
                at += 4;
                return (char) Integer.parseInt(text.substring(at - 4, at), 16);
            default: return c;
        }
    }

    private Object number() {
        int start = at;
        while (at < text.length() && "+-.eE0123456789".indexOf(text.charAt(at)) >= 0) at++;
        String number = text.substring(start, at);
        if (number.isEmpty()) throw wrong("a value");
        if (number.matches("-?\\d+")) return Long.parseLong(number);
        return Double.parseDouble(number);
    }

    private boolean word(String word) {
        boolean here = text.startsWith(word, at);
        if (here) at += word.length();
        return here;
    }

    private boolean ends(char close) {
        space();
        if (peek() != close) return false;
        at++;
        return true;
    }

    private boolean more(char close) {
        space();
        char c = next();
        if (c != ',' && c != close) throw wrong(", or " + close);
        return c == ',';
    }

    private void space() {
        while (at < text.length() && Character.isWhitespace(text.charAt(at))) at++;
    }

    private char peek() {
        if (at >= text.length()) throw wrong("more");
        return text.charAt(at);
    }

    private char next() {
        char c = peek();
        at++;
        return c;
    }

    private void take(char c) {
        if (next() != c) throw wrong(String.valueOf(c));
    }

    private IllegalArgumentException wrong(String wanted) {
        return new IllegalArgumentException("wanted " + wanted + " at " + at + " in " + text);
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Map<?, ?> map) {
            String comma = "{";
            if (map.isEmpty()) out.append('{');
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                out.append(comma);
                write(String.valueOf(entry.getKey()), out);
                out.append(':');
                write(entry.getValue(), out);
                comma = ",";
            }
            out.append('}');
        } else if (value instanceof Iterable<?> list) {
            out.append('[');
            String comma = "";
            for (Object item : list) {
                out.append(comma);
                write(item, out);
                comma = ",";
            }
            out.append(']');
        } else if (value instanceof String string) {
            quote(string, out);
        } else {
            out.append(value);
        }
    }

    private static void quote(String string, StringBuilder out) {
        out.append('"');
        for (char c : string.toCharArray()) {
            if (c == '"' || c == '\\') out.append('\\').append(c);
            else if (c < ' ' || c > '~') out.append(String.format("\\u%04x", (int) c));
            else out.append(c);
        }
        out.append('"');
    }
}
